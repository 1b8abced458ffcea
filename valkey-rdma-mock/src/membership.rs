//! A node's place in a cluster: what it knows about the other nodes, and what it shares with them.

mod behaviour;
mod bus;
mod routing;
mod slot;
mod topology;

pub(crate) use behaviour::{Answer, Behaviour, Publication};
pub(crate) use bus::{Bus, Keyspace, Neighbour};
pub(crate) use routing::{Asked, Destination, redirection, route};
pub(crate) use slot::{SLOTS, Slot, slot_of};
pub(crate) use topology::{NodeInfo, Topology};

pub use topology::Endpoint;

use std::sync::{Arc, OnceLock};

/// The replication offset of every node: all have received everything.
pub(crate) const OFFSET: i64 = 1;

/// What a node's state has if the node belongs to a cluster.
#[derive(Clone)]
pub(crate) struct Member {
    /// The node's index in the topology.
    pub(crate) index: usize,
    pub(crate) bus: Arc<Bus>,
    /// The data of the node's shard.
    pub(crate) keyspace: Arc<Keyspace>,
    pub(crate) behaviour: Arc<Behaviour>,
    /// `listenerN` lines of `INFO`.
    pub(crate) listeners: Arc<OnceLock<Vec<String>>>,
}

impl Member {
    /// The topology as this node sees it.
    pub(crate) fn topology(&self) -> Arc<Topology> {
        self.behaviour.view().unwrap_or_else(|| self.bus.topology())
    }

    pub(crate) fn is_replica(&self) -> bool {
        self.topology().nodes[self.index].primary.is_some()
    }

    /// The availability zone; empty if none.
    pub(crate) fn zone(&self) -> Arc<str> {
        self.topology().nodes[self.index].zone.clone()
    }
}
