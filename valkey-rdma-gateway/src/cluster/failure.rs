//! What local clients see when a command fails: never a redirection. If no node answers, the client is closed.

use std::time::Instant;

use tracing::{debug, warn};
use valkey_rdma_client::{AbortedTransaction, ClusterError, Error, Fate};
use valkey_rdma_resp::{Reply, ServerError, ServerErrorKind};

use crate::observe::metrics::Metrics;
use crate::upstream::open_error::one_line;

/// The error reply for a failure, which it counts. `None`: no node answers, and the client is closed, as the end of a server closes it.
pub(crate) fn failure(error: &Error, metrics: &Metrics) -> Option<Reply> {
    let reply = refusal(error, metrics);
    if reply.is_none() {
        if is_unserved(error)
            && let Some(unlogged) = metrics.unserved.pass(Instant::now())
        {
            warn!(%error, unlogged, "client closed: no node of the cluster takes its command");
        }
        match error.fate() {
            Fate::MayHaveRun => {
                metrics.may_have_run.add(1);
                debug!(%error, "a command may have run");
            }
            _ => {
                metrics.not_sent.add(1);
                debug!(%error, "a command was not sent");
            }
        }
    }
    reply
}

/// As [`failure`], for a command that its client sends again if no node answers: then it is not counted.
pub(crate) fn refusal(error: &Error, metrics: &Metrics) -> Option<Reply> {
    if let Some(refusal) = error.server().filter(|_| !is_redirection(error)) {
        return Some(refusal.clone().into());
    }
    metrics.commands_refused.add(is_refusal(error).into());
    let text = match error {
        Error::Aborted(AbortedTransaction::Refused { error, .. }) => {
            format!("EXECABORT Transaction discarded because of previous errors: {error}")
        }
        Error::Cluster(ClusterError::Partial { .. }) if error.fate() == Fate::Answered => {
            return partial(error);
        }
        Error::Cluster(ClusterError::CrossSlot { .. }) => format!("CROSSSLOT {error}"),
        Error::Cluster(ClusterError::NoRoute { command, .. }) => format!(
            "ERR the gateway of a cluster refuses {command}: it concerns one node, and no key says which; send it to that node directly"
        ),
        Error::Refused(refusal) => format!(
            "ERR the gateway of a cluster refuses {}: it changes the state of a connection, and the nodes have many",
            refusal.command
        ),
        Error::Unexpected(_) => format!("ERR {error}"),
        Error::Aborted(AbortedTransaction::NotBegun { .. }) => format!("ERR {error}"),
        _ => return None,
    };
    Some(Reply::error(one_line(&text)))
}

/// The error reply for a command of which a part failed and another did not, if it is that.
pub(super) fn partial(error: &Error) -> Option<Reply> {
    let Error::Cluster(ClusterError::Partial { first, .. }) = error else { return None };
    let code = first.server().map_or("ERR", |error| &error.code);
    Some(Reply::error(one_line(&format!("{code} {error}"))))
}

/// Whether the gateway refuses the command.
pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::Cluster(ClusterError::CrossSlot { .. } | ClusterError::NoRoute { .. }) | Error::Refused(_)
    )
}

/// Whether a server sends the command to another node, which a local client cannot follow. It has not run.
fn is_redirection(error: &Error) -> bool {
    let kind = error.server().map(ServerError::kind);
    matches!(kind, Some(ServerErrorKind::Moved | ServerErrorKind::Ask))
}

/// Whether all nodes may be connected, and none of them takes the command: no other line of the log says why its client is closed.
fn is_unserved(error: &Error) -> bool {
    match error {
        Error::Cluster(ClusterError::Partial { first, .. }) => is_unserved(first),
        Error::Cluster(ClusterError::Uncovered { .. } | ClusterError::Redirected { .. }) => true,
        other => is_redirection(other),
    }
}

/// Whether an error is about the nodes and the slots they have now, and the command has not run.
pub(crate) fn is_about_nodes(error: &Error) -> bool {
    match error {
        Error::Aborted(AbortedTransaction::Refused { error, .. }) => passes(&Error::Server(error.clone())),
        other => passes(other),
    }
}

/// Whether the reason is a state of the cluster that passes.
pub(super) fn passes(error: &Error) -> bool {
    error.server().is_some_and(ServerError::is_about_node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_redirection_reaches_a_local_client() {
        let metrics = Metrics::default();
        let reply = |text: &str| match failure(&ServerError::from_reply(text.as_bytes()).into(), &metrics) {
            Some(Reply::Error(text)) => Some(text.into_owned()),
            None => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(reply("WRONGTYPE x").as_deref(), Some("WRONGTYPE x"));
        assert_eq!(reply("MOVED 1 h:x"), None);
    }
}
