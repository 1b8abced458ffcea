//! [`Verdict`]: what an error reply of a cluster node asks its client to do.

use valkey_rdma_resp::{ServerError, ServerErrorKind};

use super::address::NodeAddress;
use super::slots_reply::SLOTS;

/// What to do after an error reply. None of these commands has run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// MOVED: the slot belongs to this node from now on.
    Moved(u16, NodeAddress),
    /// ASK: this once, this node has the key.
    Ask(NodeAddress),
    /// TRYAGAIN: some of the keys have moved and some have not.
    TryAgain,
    /// CLUSTERDOWN, LOADING, MASTERDOWN, READONLY, a blocking command on what was a primary: the node, or the cluster, is not ready.
    NotReady,
    /// The answer to the command.
    Final,
}

impl Verdict {
    /// `answering` is the node that answers: it stands in for an endpoint that it does not know.
    pub(super) fn of(error: &ServerError, answering: &NodeAddress) -> Self {
        match error.kind() {
            ServerErrorKind::Moved => match target(&error.message, answering) {
                Some((slot, address)) => Self::Moved(slot, address),
                // The map may have its address.
                None if names_no_node(&error.message) => Self::NotReady,
                None => Self::Final,
            },
            ServerErrorKind::Ask => match target(&error.message, answering) {
                Some((_, to)) => Self::Ask(to),
                // Until the slot has moved.
                None if names_no_node(&error.message) => Self::TryAgain,
                None => Self::Final,
            },
            ServerErrorKind::TryAgain => Self::TryAgain,
            ServerErrorKind::ClusterDown
            | ServerErrorKind::Loading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly => Self::NotReady,
            // A primary that becomes a replica ends blocking commands. CLIENT UNBLOCK has another text.
            _ if error.code == "UNBLOCKED" && error.message.contains("instance state changed") => {
                Self::NotReady
            }
            _ => Self::Final,
        }
    }
}

/// True for `3999 ?:6381`: the cluster prefers host names, and that node announces none.
fn names_no_node(message: &str) -> bool {
    message.split_once(' ').is_some_and(|(_, address)| address.trim().starts_with("?:"))
}

/// Reads `3999 127.0.0.1:6381`. An empty host is that of the answering node, and so is port 0.
fn target(message: &str, answering: &NodeAddress) -> Option<(u16, NodeAddress)> {
    let (slot, address) = message.split_once(' ')?;
    let slot = slot.parse().ok().filter(|slot| usize::from(*slot) < SLOTS)?;
    let (host, port) = address.trim().rsplit_once(':')?;
    let host = match host {
        "" => &answering.host,
        "?" => return None,
        host => host,
    };
    let port = port.parse().ok()?;
    Some((slot, NodeAddress::new(host, if port == 0 { answering.port } else { port })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str) -> Verdict {
        Verdict::of(&ServerError::from_reply(text.as_bytes()), &NodeAddress::new("self", 7))
    }

    #[test]
    fn redirections_name_a_node() {
        assert_eq!(
            verdict("MOVED 3999 10.0.0.1:6381"),
            Verdict::Moved(3999, NodeAddress::new("10.0.0.1", 6381))
        );
        assert_eq!(verdict("ASK 1 fd00::1:6381"), Verdict::Ask(NodeAddress::new("fd00::1", 6381)));
        assert_eq!(verdict("MOVED 0 :6381"), Verdict::Moved(0, NodeAddress::new("self", 6381)));
        assert_eq!(verdict("MOVED 0 host:0"), Verdict::Moved(0, NodeAddress::new("host", 7)));
    }

    #[test]
    fn a_redirection_that_makes_no_sense_is_the_answer() {
        for text in ["MOVED", "MOVED x h:1", "MOVED 16384 h:1", "MOVED 1 h", "MOVED 1 h:x", "MOVED ?", "ASK"]
        {
            assert_eq!(verdict(text), Verdict::Final, "{text}");
        }
    }

    /// As a cluster that prefers host names names a node without one.
    #[test]
    fn a_redirection_to_a_node_without_a_name_is_waited_out() {
        assert_eq!(verdict("MOVED 1 ?:1"), Verdict::NotReady);
        assert_eq!(verdict("ASK 1 ?:1"), Verdict::TryAgain);
    }

    #[test]
    fn conditions_that_pass_are_waited_out() {
        for text in ["CLUSTERDOWN x", "LOADING x", "MASTERDOWN x", "READONLY x"] {
            assert_eq!(verdict(text), Verdict::NotReady, "{text}");
        }
        let failed_over =
            "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
        assert_eq!(verdict(failed_over), Verdict::NotReady);
        assert_eq!(verdict("UNBLOCKED client unblocked via CLIENT UNBLOCK"), Verdict::Final);
        assert_eq!(verdict("TRYAGAIN x"), Verdict::TryAgain);
        assert_eq!(verdict("WRONGTYPE x"), Verdict::Final);
    }
}
