//! From a command to the nodes it concerns: [`route`], and [`Route`] where the caller says it.

use crate::endpoint::NodeAddress;
use bytes::Bytes;
use redis_protocol::redis_keyslot;

use crate::command::Command;
use crate::command::table::{Access, Description, Request, Response, find, for_each_key};
use crate::error::ClusterError;

/// The nodes that a command is sent to, if its keys do not say it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route {
    /// The primary of the slot of this key.
    Key(Bytes),
    /// The primary of this slot, 0 to 16383.
    Slot(u16),
    /// The node with this announced address.
    Node(NodeAddress),
    /// Some primary.
    Any,
    /// All primaries.
    AllPrimaries,
    /// All nodes.
    AllNodes,
}

/// Where the client of a cluster sends a command: [`Routing::of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Routing {
    /// All its keys are in this slot.
    Slot(u16),
    /// Its keys are in several slots. The client splits it, and joins the replies.
    Split,
    /// Without keys: some primary.
    Any,
    /// Without keys: all primaries. The client joins their replies.
    Several,
    /// As `Several`, for all nodes, replicas too.
    AllNodes,
}

impl Routing {
    /// Finds the nodes that a command concerns, from its name and its keys.
    ///
    /// ```
    /// use valkey_rdma_client::cluster::Routing;
    /// use valkey_rdma_client::cmd;
    ///
    /// assert_eq!(Routing::of(&cmd!["GET", "123456789"])?, Routing::Slot(12739));
    /// assert_eq!(Routing::of(&cmd!["MGET", "a", "b"])?, Routing::Split);
    /// assert!(Routing::of(&cmd!["SUNION", "a", "b"]).is_err());
    /// # Ok::<(), valkey_rdma_client::ClusterError>(())
    /// ```
    ///
    /// # Errors
    /// [`ClusterError::CrossSlot`] if its keys are in several slots and it cannot be split. [`ClusterError::NoRoute`] if it concerns
    /// one node and no key names it, or if its name is unknown: `Cluster::routing` then asks a server.
    pub fn of(command: &Command) -> Result<Self, ClusterError> {
        let description = find(command).ok_or_else(|| no_route(command, UNKNOWN))?;
        Ok(route(command, description)?.into())
    }
}

impl From<Routed> for Routing {
    fn from(routed: Routed) -> Self {
        match routed {
            Routed::Slot(slot) => Self::Slot(slot),
            Routed::Split => Self::Split,
            Routed::Any => Self::Any,
            Routed::AllPrimaries(_) => Self::Several,
            Routed::AllNodes(_) => Self::AllNodes,
        }
    }
}

/// The slot of a key.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    redis_keyslot(key)
}

/// Where a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Routed {
    /// All its keys are in this slot.
    Slot(u16),
    /// Its keys are in several slots, and it can be split.
    Split,
    /// It has no keys: some primary.
    Any,
    AllPrimaries(Response),
    AllNodes(Response),
}

/// Finds the slot of the keys, or the nodes that a command without keys concerns.
pub(super) fn route(command: &Command, description: &Description<'_>) -> Result<Routed, ClusterError> {
    let mut first = None;
    let mut other = None;
    for_each_key(command, description.keys, &mut |_, key| {
        let slot = slot_of(key);
        match first {
            None => first = Some(slot),
            Some(first) if first != slot => other = Some(slot),
            Some(_) => {}
        }
        other.is_none()
    });
    match (first, other, description.request) {
        (Some(slot), None, _) => Ok(Routed::Slot(slot)),
        (Some(_), Some(_), Request::MultiShard) if !is_all_or_nothing(command) => Ok(Routed::Split),
        (Some(first), Some(second), _) => {
            Err(ClusterError::CrossSlot { command: command.name(), first, second })
        }
        (None, _, Request::AllShards) => Ok(Routed::AllPrimaries(description.response)),
        (None, _, Request::AllNodes) => Ok(Routed::AllNodes(description.response)),
        (None, _, Request::Special) => Err(no_route(command, SCANS)),
        (None, ..) if concerns_one_node(command, description) => Err(no_route(command, NAME_THE_NODE)),
        (None, ..) => Ok(Routed::Any),
    }
}

/// The error of a command whose node cannot be found.
pub(super) fn no_route(command: &Command, reason: &'static str) -> ClusterError {
    ClusterError::NoRoute { command: command.name(), reason }
}

/// True for MSETEX with NX or XX: it sets all its keys or none, and its parts could not agree. MSETNX is never split.
fn is_all_or_nothing(command: &Command) -> bool {
    let mut words = command.words();
    if !words.next().is_some_and(|name| name.eq_ignore_ascii_case(b"MSETEX")) {
        return false;
    }
    let pairs = words.next().and_then(|count| std::str::from_utf8(count).ok()?.parse::<usize>().ok());
    let options = words.skip(pairs.unwrap_or_default().saturating_mul(2));
    let is_condition = |word: &[u8]| word.eq_ignore_ascii_case(b"NX") || word.eq_ignore_ascii_case(b"XX");
    options.into_iter().any(is_condition)
}

/// True for commands that change one node: a random one would be wrong.
fn concerns_one_node(command: &Command, description: &Description<'_>) -> bool {
    if description.access == Access::Read {
        return false;
    }
    let mut words = command.words().map(<[u8]>::to_ascii_uppercase);
    let (name, sub) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match &name[..] {
        // Every node has the same text.
        b"DEBUG" | b"MODULE" if sub == b"HELP" => false,
        // Modules must be loaded in all nodes.
        b"MODULE" if sub == b"LIST" => false,
        b"SHUTDOWN" | b"REPLICAOF" | b"SLAVEOF" | b"FAILOVER" | b"BGSAVE" | b"SAVE" | b"BGREWRITEAOF"
        | b"DEBUG" | b"MODULE" | b"SWAPDB" => true,
        b"CLUSTER" => !READ_BY_ANY.contains(&&sub[..]),
        // The ids of clients are a node's own.
        b"CLIENT" => [&b"KILL"[..], b"PAUSE", b"UNBLOCK", b"UNPAUSE"].contains(&&sub[..]),
        b"ACL" => sub == b"LOAD",
        _ => false,
    }
}

/// Subcommands of CLUSTER whose reply is the same on every node.
const READ_BY_ANY: [&[u8]; 7] =
    [b"INFO", b"KEYSLOT", b"NODES", b"SHARDS", b"SLOTS", b"HELP", b"COUNT-FAILURE-REPORTS"];

const SCANS: &str = "its cursor holds on one node only; use Client::scan";
pub(super) const UNKNOWN: &str = "its keys are unknown";
const NAME_THE_NODE: &str = "it concerns one node; name it with Cluster::command_on";

#[cfg(test)]
mod tests {
    use super::*;

    fn routed(line: &str) -> Result<Routed, ClusterError> {
        let command = Command::from_args(line.split(' '));
        route(&command, find(&command).expect("known"))
    }

    #[test]
    fn keys_decide_and_hash_tags_keep_them_together() {
        assert_eq!(routed("GET 123456789").expect("a slot"), Routed::Slot(12739));
        assert_eq!(routed("SUNION {a}1 {a}2").expect("a slot"), routed("GET a").expect("a slot"));
        assert_eq!(routed("MGET a b").expect("several"), Routed::Split);
        assert_eq!(routed("MGET a a").expect("one"), routed("GET a").expect("one"));
        let error = routed("SUNION a b").expect_err("two slots");
        assert!(matches!(error, ClusterError::CrossSlot { first: 15495, second: 3300, .. }), "{error:?}");
        assert!(error.to_string().contains("hash tag"), "{error}");
    }

    #[test]
    fn commands_that_set_all_keys_or_none_are_not_split() {
        assert_eq!(routed("MSETEX 2 a NX b XX EX 5").expect("several"), Routed::Split);
        for line in ["MSETEX 2 a 1 b 2 NX", "msetex 2 a 1 b 2 EX 5 xx", "MSETNX a 1 b 2"] {
            assert!(matches!(routed(line), Err(ClusterError::CrossSlot { .. })), "{line}");
        }
        assert!(matches!(routed("MSETEX 2 {a}1 1 {a}2 2 NX"), Ok(Routed::Slot(_))));
    }

    #[test]
    fn commands_without_keys_go_where_their_description_says() {
        assert_eq!(routed("DBSIZE").expect("all"), Routed::AllPrimaries(Response::Sum));
        assert_eq!(routed("CONFIG SET a b").expect("all"), Routed::AllNodes(Response::AllSucceeded));
        assert_eq!(routed("TIME").expect("any"), Routed::Any);
        assert_eq!(routed("EVAL x 0").expect("any"), Routed::Any);
        assert_eq!(routed("CLUSTER SHARDS").expect("any"), Routed::Any);
        for any in ["MODULE LIST", "module help", "DEBUG HELP"] {
            assert_eq!(routed(any).expect("any"), Routed::Any, "{any}");
        }
        let ones = [
            "SHUTDOWN",
            "CLUSTER FAILOVER",
            "DEBUG SLEEP 1",
            "SCAN 0",
            "MODULE LOAD x",
            "MODULE",
            "ACL LOAD",
        ];
        let of_clients = ["CLIENT KILL ID 7", "client unblock 7", "CLIENT PAUSE 9", "CLIENT UNPAUSE"];
        for one in ones.iter().chain(&of_clients) {
            assert!(matches!(routed(one), Err(ClusterError::NoRoute { .. })), "{one}");
        }
    }
}
