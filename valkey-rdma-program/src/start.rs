//! [`start`]: what every program does first.

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::{LevelFilter, generate, log_to_stderr, matches_of, refusal, refuse};

/// Parses the command line, and [logs](log_to_stderr) from now on.
///
/// # Errors
/// The program ends with this status: it has printed what the command line asked for, such as help; or, in one line, why the command
/// line or `RUST_LOG` makes no sense, with status 2. A command line without a required subcommand gets the help, and status 2.
pub fn start<A: Parser>(level: LevelFilter) -> Result<A, ExitCode> {
    if let Some(status) = generate(A::command()) {
        return Err(status);
    }
    let read = matches_of(A::command(), std::env::args_os()).and_then(|mut matches| {
        A::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut A::command()))
    });
    let args = read.map_err(|error| {
        let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
        if error.use_stderr() && !is_help {
            return refuse(&refusal(&error));
        }
        // Its output may be a pipe that the reader has closed already.
        let _ = error.print();
        if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
    })?;
    log_to_stderr(level).map_err(|error| refuse(&error))?;
    Ok(args)
}
