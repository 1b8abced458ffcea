//! What the nodes of a cluster share: the topology, the data of each shard, and messages to each other.
//!
//! **Order of locks**: a node's state, then a keyspace (two: the lower shard first), then the topology. None is held while a
//! [`Neighbour`] is called.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;
use valkey_rdma_transport::sync::lock;

use super::behaviour::{Behaviour, Publication};
use super::slot::{Slot, slot_of};
use super::topology::Topology;
use crate::store::{DATABASES, Database, Expiry};

/// The cluster bus.
pub(crate) struct Bus {
    topology: Mutex<Arc<Topology>>,
    /// By shard.
    keyspaces: Vec<Arc<Keyspace>>,
    /// By node.
    behaviours: Vec<Arc<Behaviour>>,
    /// By node. A node that was killed is gone.
    neighbours: Mutex<Vec<Weak<dyn Neighbour>>>,
}

/// The data of a shard. A node that runs a command borrows it: primary and replicas always have the same data.
pub(crate) struct Keyspace(Mutex<Vec<Database>>);

/// Another node, as far as the bus reaches it.
pub(crate) trait Neighbour: Send + Sync {
    /// Delivers a message to the node's subscribers.
    fn deliver(&self, publication: &Publication);

    /// Ends what the node may no longer serve: subscriptions to shard channels, and blocked commands.
    fn topology_changed(&self);
}

impl Keyspace {
    pub(crate) fn new() -> Self {
        Self(Mutex::new((0..DATABASES).map(|_| Database::default()).collect()))
    }

    /// The databases, for one command or one move of keys.
    pub(crate) fn borrow(&self) -> MutexGuard<'_, Vec<Database>> {
        lock(&self.0)
    }
}

impl Bus {
    pub(crate) fn new(topology: Topology, shards: usize) -> Self {
        let nodes = topology.nodes.len();
        Self {
            topology: Mutex::new(Arc::new(topology)),
            keyspaces: (0..shards).map(|_| Arc::new(Keyspace::new())).collect(),
            behaviours: (0..nodes).map(|_| Arc::new(Behaviour::new())).collect(),
            neighbours: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn topology(&self) -> Arc<Topology> {
        lock(&self.topology).clone()
    }

    /// Changes the topology for all nodes. If slots or roles change, [`announce`](Self::announce) must follow, without any lock held.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Topology) -> R) -> R {
        let mut topology = lock(&self.topology);
        change(Arc::make_mut(&mut topology))
    }

    pub(crate) fn keyspace(&self, shard: usize) -> &Arc<Keyspace> {
        &self.keyspaces[shard]
    }

    pub(crate) fn behaviour(&self, node: usize) -> &Arc<Behaviour> {
        &self.behaviours[node]
    }

    /// Connects a node to the bus, in place of the one that had its index before.
    pub(crate) fn join(&self, node: usize, neighbour: Weak<dyn Neighbour>) {
        let mut neighbours = lock(&self.neighbours);
        match neighbours.get_mut(node) {
            Some(entry) => *entry = neighbour,
            None => neighbours.push(neighbour),
        }
    }

    fn neighbour(&self, node: usize) -> Option<Arc<dyn Neighbour>> {
        let neighbours = lock(&self.neighbours);
        neighbours.get(node).and_then(Weak::upgrade)
    }

    /// Announces a change of the topology to all nodes.
    pub(crate) fn announce(&self) {
        for node in 0..self.behaviours.len() {
            if let Some(neighbour) = self.neighbour(node) {
                neighbour.topology_changed();
            }
        }
    }

    /// Delivers a message to the other nodes that it is for.
    pub(crate) fn publish(&self, from: usize, publication: &Publication) {
        let topology = self.topology();
        let shard = topology.nodes[from].shard;
        for (index, node) in topology.nodes.iter().enumerate() {
            let addressed = index != from && (!publication.sharded || node.shard == shard);
            if addressed && !self.behaviours[index].miss(publication) {
                self.deliver(index, publication);
            }
        }
    }

    /// Ends the freezing of a node, which then receives the messages published meanwhile.
    pub(crate) fn thaw(&self, node: usize) {
        for publication in self.behaviours[node].thaw() {
            self.deliver(node, &publication);
        }
    }

    fn deliver(&self, node: usize, publication: &Publication) {
        if let Some(neighbour) = self.neighbour(node) {
            neighbour.deliver(publication);
        }
    }

    /// Moves keys of these slots from one shard to another, at most `limit` of them, and then changes the topology, so that no
    /// command sees one without the other. Returns how many keys moved.
    pub(crate) fn migrate(
        &self,
        from: usize,
        to: usize,
        moves: impl Fn(Slot) -> bool,
        limit: usize,
        change: impl FnOnce(&mut Topology),
    ) -> usize {
        if from == to {
            self.change(change);
            return 0;
        }
        let low = self.keyspaces[from.min(to)].borrow();
        let high = self.keyspaces[from.max(to)].borrow();
        let (mut source, mut target) = if from < to { (low, high) } else { (high, low) };
        let mut moved = 0;
        for (source, target) in source.iter_mut().zip(target.iter_mut()) {
            let keys = source.iter().map(|(key, _)| key).filter(|key| moves(slot_of(key)));
            let keys: Vec<Bytes> = keys.take(limit - moved).cloned().collect();
            moved += keys.len();
            for key in keys {
                if let Some((value, deadline)) = source.take(&key) {
                    target.set(&key, value, deadline.map_or(Expiry::Never, Expiry::At));
                }
            }
            // The commands that wait for these keys are redirected by `announce`.
            source.forget_changed();
            target.forget_changed();
        }
        self.change(change);
        moved
    }
}
