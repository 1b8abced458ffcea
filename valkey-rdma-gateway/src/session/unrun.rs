//! [`Unrun`]: why a transaction fails before it begins.

use bytes::Bytes;

use crate::metrics::Metrics;
use crate::open_error::OpenError;

/// Why the commands of a transaction do not run.
pub(super) enum Unrun {
    /// The gateway refuses them, with this reply.
    Refused(Bytes),
    /// There may be no connection for them, and the client gets this reply.
    NotSent(OpenError, Bytes),
}

impl Unrun {
    pub(super) fn reply(&self) -> Bytes {
        match self {
            Self::Refused(reply) | Self::NotSent(_, reply) => reply.clone(),
        }
    }

    /// Counts a command that does not run.
    pub(super) fn count(&self, metrics: &Metrics) {
        match self {
            Self::Refused(_) => metrics.commands_refused.add(1),
            Self::NotSent(error, _) => error.count_unsent(1, metrics),
        }
    }
}
