//! Logging to standard error.

use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::style::Style;

/// Logs to standard error what the variable `RUST_LOG` says, or without it everything up to `level`, from now on.
/// With [`LevelFilter::OFF`] and without the variable, logging costs nothing.
///
/// # Errors
/// A text for people if the variable is malformed.
///
/// # Panics
/// If the process logs already.
pub fn log_to_stderr(level: LevelFilter) -> Result<(), String> {
    let filter = EnvFilter::builder().with_default_directive(level.into()).from_env();
    let filter = filter.map_err(|error| format!("{}: {error}", EnvFilter::DEFAULT_ENV))?;
    let colours = Style::of(&io::stderr()) == Style::Terminal;
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(io::stderr).init();
    Ok(())
}
