//! [`FailedCommand`]: which command of a pipeline or a transaction failed.

use std::fmt;

use super::Error;

/// The first command of a pipeline or a transaction that failed, when all replies were converted together: its reply is an error,
/// is missing, or does not convert. The other commands ran all the same, or may have.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FailedCommand {
    /// Which command, counted from 0.
    pub index: usize,
    /// Its name.
    pub command: String,
    /// What it failed with.
    pub error: Error,
}

impl FailedCommand {
    pub(crate) fn new(index: usize, command: String, error: Error) -> Self {
        Self { index, command, error }
    }
}

impl fmt::Display for FailedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command {}, {}: ", self.index, self.command)?;
        // With its flags: `{:#}` is everything in one line.
        self.error.fmt(f)
    }
}

impl std::error::Error for FailedCommand {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The error itself is part of the text.
        self.error.source()
    }
}
