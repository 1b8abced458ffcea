//! [`Mark`]: what the gateway sends behind RESET to see that it is over.

use std::hash::{BuildHasher, RandomState};

use crate::command::words::encode;

/// A word that no earlier command can have asked for. HELLO repeats it in an error, whatever the permissions of the user are.
#[derive(Debug)]
pub(crate) struct Mark(String);

impl Mark {
    pub(crate) fn new() -> Self {
        Self(format!("{:016x}", RandomState::new().hash_one(())))
    }

    /// The command that has it.
    pub(crate) fn command(&self) -> Vec<u8> {
        encode(["HELLO", "2", &self.0])
    }

    /// Whether this is the answer to that command.
    pub(crate) fn is_in(&self, frame: &[u8]) -> bool {
        frame.starts_with(b"-") && frame.windows(self.0.len()).any(|at| at == self.0.as_bytes())
    }
}
