//! What was found instead of what was expected.

use std::fmt;

use valkey_rdma_program::error_chain;
use valkey_rdma_transport::TransportError;

/// Why a case did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The other side did something else than it must.
    Failed(String),
    /// The situation that the case needs did not arise, so the case shows nothing about the other side.
    NotRun(String),
}

impl Finding {
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self::Failed(what.into())
    }

    pub(crate) fn not_run(why: impl Into<String>) -> Self {
        Self::NotRun(why.into())
    }
}

/// A device that refuses is a finding like any other: the text has the whole chain.
impl From<TransportError> for Finding {
    fn from(error: TransportError) -> Self {
        Self::Failed(error_chain(&error))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(what) => f.write_str(what),
            Self::NotRun(why) => write!(f, "not run: {why}"),
        }
    }
}

impl std::error::Error for Finding {}
