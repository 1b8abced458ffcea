//! The command line.

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::{complain, generate, refusal};

/// Parses the command line.
///
/// # Errors
/// The program ends with this status: it has printed what the command line asked for, such as help; or, in one line, why the command
/// line makes no sense, with status 2. A command line without a required subcommand gets the help, and status 2.
pub fn parse<A: Parser>() -> Result<A, ExitCode> {
    if let Some(status) = generate(A::command()) {
        return Err(status);
    }
    A::try_parse().map_err(|error| {
        let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        if error.use_stderr() && !is_help {
            complain(&refusal(&error));
        } else {
            // Its output may be a pipe that the reader has closed already.
            let _ = error.print();
        }
        if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
    })
}
