//! [`ClusterStatus`]: the cluster as a client knows it, for people and for monitoring.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::address::NodeAddress;
use super::core::Core;
use super::node::Node;
use crate::endpoint::Transport;
use crate::stats::ClusterCounters;
use crate::stats::ConnectionStatus;
use valkey_rdma_transport::sync::lock;

/// What a cluster client knows of its cluster: [`Cluster::status`](super::Cluster::status).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusterStatus {
    /// True if the map names a node for every slot. Whether these can be reached, and answer, is in [`nodes`](Self::nodes).
    pub is_complete: bool,
    /// Counts the slot maps that the client has had: readings that differ, and changes by MOVED.
    pub maps: u64,
    /// Counters of redirections, waits and readings of the map.
    pub counters: ClusterCounters,
    /// The nodes, shard by shard, each primary before its replicas.
    pub nodes: Vec<NodeStatus>,
}

/// A node, as the client knows it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The address that the cluster announces.
    pub address: NodeAddress,
    /// True if the port was announced as 0, as clusters with TLS only do. The port of the node that reported it is
    /// taken instead.
    pub port_assumed: bool,
    /// Its node id, if known.
    pub id: Option<String>,
    /// Its availability zone, if known. Asked for only where [`ReadFrom`](super::ReadFrom) needs it.
    pub zone: Option<String>,
    /// True for a primary.
    pub is_primary: bool,
    /// How many slots it serves; 0 for replicas.
    pub slots: usize,
    /// The transport of its connection; `None` while not connected. With `fallback=tcp` this may be TCP for some nodes.
    pub transport: Option<Transport>,
    /// Its connections.
    pub connections: Vec<ConnectionStatus>,
    /// Why the last attempt to connect to it failed.
    pub error: Option<String>,
    /// How long it has left commands unanswered, once that is longer than
    /// [`silence_limit`](crate::Config::silence_limit).
    pub silent_for: Option<Duration>,
}

impl ClusterStatus {
    pub(super) fn of(core: &Core) -> Self {
        let map = core.topology.map();
        let mut nodes = Vec::new();
        for (shard, slots) in map.shards().iter().zip(map.slot_counts()) {
            nodes.push(NodeStatus::of(&shard.primary, true, slots));
            nodes.extend(shard.replicas.iter().map(|replica| NodeStatus::of(replica, false, 0)));
        }
        let maps = core.topology.version();
        Self { is_complete: map.is_complete(), maps, counters: *lock(&core.counters), nodes }
    }
}

impl NodeStatus {
    fn of(node: &Arc<Node>, is_primary: bool, slots: usize) -> Self {
        let facts = node.facts();
        let client = node.live();
        Self {
            address: node.address().clone(),
            port_assumed: facts.port_assumed,
            id: facts.id,
            zone: facts.zone.as_deref().map(str::to_owned),
            is_primary,
            slots,
            transport: client.as_ref().map(|client| client.info().transport),
            connections: client.map(|client| client.connections()).unwrap_or_default(),
            error: node.last_error().map(|error| format!("{error:#}")),
            silent_for: node.silent_for(),
        }
    }
}

/// One line for the cluster and one for each node.
impl fmt::Display for ClusterStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_complete, maps, counters, nodes } = self;
        let complete = if *is_complete { "all slots assigned" } else { "SLOTS WITHOUT A NODE" };
        writeln!(
            f,
            "{} nodes, {complete}, map {maps}; moved {}, ask {}, tryagain {}, not ready {}, lost {}, refreshes {} ({} failed), given up {}",
            nodes.len(),
            counters.moved,
            counters.ask,
            counters.try_again,
            counters.not_ready,
            counters.lost,
            counters.refreshes,
            counters.failed_refreshes,
            counters.given_up,
        )?;
        nodes.iter().try_for_each(|node| writeln!(f, "{node}"))
    }
}

/// One line, such as `10.0.0.1:6379 primary, 5461 slots: rdma to 10.0.0.1:6379 (resp3, ...)`.
impl fmt::Display for NodeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = if self.is_primary { "primary" } else { "replica" };
        write!(f, "{} {role}, {} slots", self.address, self.slots)?;
        if self.port_assumed {
            f.write_str(", port assumed (announced as 0)")?;
        }
        if let Some(zone) = &self.zone {
            write!(f, ", zone {zone}")?;
        }
        match (self.connections.first(), &self.error) {
            (Some(connection), _) => {
                if let Some(silent_for) = self.silent_for {
                    let waiting = self.connections.iter().map(|connection| connection.counters.in_flight);
                    write!(f, ", no reply for {silent_for:.1?}, {} in flight", waiting.sum::<u64>())?;
                }
                write!(f, ": {}", connection.info)
            }
            (None, Some(error)) => write!(f, ": not connected, {error:#}"),
            (None, None) => f.write_str(": not connected yet"),
        }
    }
}
