//! The command line.

use std::process::ExitCode;

use clap::Parser;

use crate::{complain, generate, refusal};

/// Parses the command line.
///
/// # Errors
/// The program ends with this status: it has printed what the command line asked for, such as help; or, in one line, why the command
/// line makes no sense, with status 2.
pub fn parse<A: Parser>() -> Result<A, ExitCode> {
    if let Some(status) = generate(A::command()) {
        return Err(status);
    }
    A::try_parse().map_err(|error| {
        if error.use_stderr() {
            complain(&refusal(&error));
            return ExitCode::from(2);
        }
        // Standard output may be a pipe that the reader has closed already.
        let _ = error.print();
        ExitCode::SUCCESS
    })
}
