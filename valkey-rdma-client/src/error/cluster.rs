//! [`ClusterError`]: what only a cluster client reports.

use std::sync::Arc;

use valkey_rdma_resp::ServerError;

use super::Error;

/// Why a cluster client could not route a command. The command did not run, but for [`Partial`](Self::Partial).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The server runs without cluster mode.
    #[error(
        "{peer} is not part of a cluster ({error}): give the URL of a single server alone, without +cluster and not in a list"
    )]
    NotACluster {
        /// `host:port` of the server.
        peer: Arc<str>,
        /// Its reply to CLUSTER SLOTS.
        error: ServerError,
    },
    /// A node's description of the cluster makes no sense.
    #[error("{peer} answers CLUSTER SLOTS with {reason}; is it a Valkey cluster?")]
    BadMap {
        /// `host:port` of the node.
        peer: Arc<str>,
        /// What is wrong with it.
        reason: String,
    },
    /// A node answers for another cluster: in its map is none of the nodes that are known.
    #[error("{peer} describes another cluster: it has no node of this one; has it taken the address?")]
    AnotherCluster {
        /// `host:port` of the node.
        peer: Arc<str>,
    },
    /// No known node answers.
    #[error("none of {tried} nodes answers; the last one: {last}")]
    Unreachable {
        /// How many were tried.
        tried: usize,
        /// What the last of them failed with.
        last: Box<Error>,
    },
    /// No node serves the slot of the key, or a slot that does not exist; or no node serves any slot.
    #[error("{}", uncovered(*.slot))]
    Uncovered {
        /// The slot. `None`: there is no primary.
        slot: Option<u16>,
    },
    /// The keys belong to different slots, and the command cannot be split. In a transaction, and after WATCH, all commands together
    /// have one slot.
    #[error(
        "{command} was not sent: it needs keys of slots {first} and {second} together; give keys that are used together the same \
        hash tag, as {{user1}}:name and {{user1}}:mail have"
    )]
    CrossSlot {
        /// The command's name; in a transaction, that of the first command whose key is in another slot.
        command: String,
        /// Slot of the first key.
        first: u16,
        /// Another slot.
        second: u16,
    },
    /// Nodes sent the command from one to the other.
    #[error("{command} was redirected {count} times, the last time with \"{last}\"; the nodes do not agree")]
    Redirected {
        /// The command's name.
        command: String,
        /// How often.
        count: u32,
        /// The last redirection.
        last: ServerError,
    },
    /// The command needs a node, and nothing says which.
    #[error("{command} was not sent: {reason}")]
    NoRoute {
        /// The command's name.
        command: String,
        /// Why, and what to use instead.
        reason: &'static str,
    },
    /// A scan began anew each time that its connection was replaced, and did not come to an end.
    #[error(
        "{command} at {address} began anew {count} times, because its connection was replaced each time; \
        ask for its batches sooner, or raise the server's `timeout`"
    )]
    ScanRestarted {
        /// The command's name.
        command: String,
        /// The node's address.
        address: String,
        /// How often.
        count: u32,
    },
    /// Some parts of a command for several nodes failed, and others ran or may have run. If servers answered every part, the
    /// [fate](Error::fate) is [`Answered`](super::Fate::Answered), else [`MayHaveRun`](super::Fate::MayHaveRun).
    #[error(
        "{failed} of the command's {parts} parts failed, and others may have run; the first failure: {first}"
    )]
    Partial {
        /// How many parts failed.
        failed: usize,
        /// How many parts there were: one for each node, or for each slot of its keys.
        parts: usize,
        /// What the first of them failed with; if servers answered some, the first that was not answered.
        first: Box<Error>,
    },
    /// The node is not part of the cluster.
    #[error("{address} is not a node of this cluster; see Cluster::status")]
    UnknownNode {
        /// The address that was asked for.
        address: String,
    },
    /// The rule for the RDMA port has no answer for a node.
    #[error("no RDMA port for {address}: {reason}")]
    NoRdmaPort {
        /// The address that the cluster announces.
        address: String,
        /// Why.
        reason: String,
    },
}

fn uncovered(slot: Option<u16>) -> String {
    match slot {
        None => "the cluster has no primary with slots; see CLUSTER INFO on any node".to_owned(),
        Some(slot @ ..=LAST_SLOT) => format!("no node serves slot {slot}; see CLUSTER INFO on any node"),
        Some(slot) => format!("there is no slot {slot}: slots are 0 to {LAST_SLOT}"),
    }
}

const LAST_SLOT: u16 = 16_383;
