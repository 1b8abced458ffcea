//! What a test does to a cluster.

use std::ops::RangeInclusive;

use tokio::task::JoinSet;
use valkey_rdma_server::{BindError, Reply, TlsError};

use super::MockCluster;
use crate::membership::{Answer, Endpoint, Slot, Topology};

/// Slots.
impl MockCluster {
    /// Moves slots with their keys to another primary, atomically.
    pub fn move_slots(&self, slots: RangeInclusive<u16>, to: usize) {
        let to = self.primary_of(to);
        for (slot, from) in self.foreign(slots, to) {
            self.hand_over(slot, from, to);
        }
        self.bus.announce();
    }

    /// Begins to move slots to another primary, as `CLUSTER SETSLOT MIGRATING` and `IMPORTING` do. Until
    /// [`finish_migration`](Self::finish_migration), their owners redirect keys that have moved with `ASK`.
    pub fn begin_migration(&self, slots: RangeInclusive<u16>, to: usize) {
        let to = self.primary_of(to);
        let foreign = self.foreign(slots, to);
        self.bus.change(|topology| {
            for (slot, from) in foreign {
                topology.migrating.insert(slot, to);
                topology.importing.insert(slot, (to, from));
            }
        });
    }

    /// Moves at most `limit` keys of a slot that [migrates](Self::begin_migration), as `MIGRATE` does. Returns how many.
    pub fn move_keys(&self, slot: u16, limit: usize) -> usize {
        let topology = self.bus.topology();
        let Some((to, from)) = topology.importing.get(&slot).copied() else { return 0 };
        let shard = |node: usize| topology.nodes[node].shard;
        self.bus.migrate(shard(from), shard(to), |other| other == slot, limit, |_| {})
    }

    /// Moves the keys that are left, and gives the slots to their new owners.
    pub fn finish_migration(&self, slots: RangeInclusive<u16>) {
        let importing = self.bus.topology().importing.clone();
        for (slot, (to, from)) in importing.range(slots) {
            self.hand_over(*slot, *from, *to);
        }
        self.bus.announce();
    }

    /// Takes slots from their owners: commands with their keys get `CLUSTERDOWN Hash slot not served`.
    pub fn unassign(&self, slots: RangeInclusive<u16>) {
        self.bus.change(|topology| slots.for_each(|slot| topology.assign(slot, None)));
        self.bus.announce();
    }

    /// The slots of these that another node owns, with their owners.
    fn foreign(&self, slots: RangeInclusive<Slot>, to: usize) -> Vec<(Slot, usize)> {
        let topology = self.bus.topology();
        let owned = slots.filter_map(|slot| Some((slot, topology.owner(slot)?)));
        owned.filter(|(_, owner)| *owner != to).collect()
    }

    fn hand_over(&self, slot: Slot, from: usize, to: usize) {
        let topology = self.bus.topology();
        let shard = |node: usize| topology.nodes[node].shard;
        let assign = |topology: &mut Topology| {
            topology.assign(slot, Some(to));
            topology.epoch += 1;
            topology.nodes[to].epoch = topology.epoch;
        };
        self.bus.migrate(shard(from), shard(to), |other| other == slot, usize::MAX, assign);
    }
}

/// Roles and health.
impl MockCluster {
    /// Makes a replica the primary of its shard; the old primary follows it. Nothing happens if it is a primary already.
    pub fn fail_over(&self, replica: usize) {
        self.bus.change(|topology| topology.promote(replica));
        self.bus.announce();
    }

    /// Closes all connections and listeners of a node at once, as the death of its process does. The topology stays. On the
    /// emulated device a client notices after some 100 ms: what it sends until then fails as lost.
    pub async fn kill(&self, node: usize) {
        self.nodes[node].kill().await;
    }

    /// Shuts down all nodes, as [`Server::shutdown`](valkey_rdma_server::Server::shutdown) does: the commands that have arrived are
    /// answered.
    ///
    /// **Cancel safety**: dropping the future cuts the connections that are left.
    pub async fn shutdown(self) {
        let mut nodes = JoinSet::new();
        for node in self.nodes {
            nodes.spawn(node.shutdown());
        }
        while nodes.join_next().await.is_some() {}
    }

    /// Starts a killed node again, on the same ports and with the data of its shard.
    ///
    /// # Errors
    ///
    /// [`BindError`] if another program has taken a port.
    pub async fn restart(&self, node: usize) -> Result<(), BindError> {
        self.nodes[node].restart().await
    }

    /// Reads the certificates of all nodes again, as [`Server::reload_tls`](valkey_rdma_server::Server::reload_tls) does.
    ///
    /// # Errors
    ///
    /// The first [`TlsError`]. The node keeps the certificates that it has.
    pub async fn reload_tls(&self) -> Result<(), TlsError> {
        let mut outcome = Ok(());
        for node in &self.nodes {
            outcome = outcome.and(node.reload_tls().await);
        }
        outcome
    }

    /// Shows a node as failed, or not: `CLUSTER SLOTS` leaves out failed replicas.
    pub fn mark_failed(&self, node: usize, failed: bool) {
        self.bus.change(|topology| topology.nodes[node].failed = failed);
    }

    /// Lets every node answer commands with keys with `CLUSTERDOWN The cluster is down`, or not.
    pub fn set_down(&self, down: bool) {
        self.bus.change(|topology| topology.down = down);
        // Blocked commands are refused, too.
        self.bus.announce();
    }

    /// Lets a node accept connections and read commands, and send nothing, until [`thaw`](Self::thaw): no replies and no
    /// messages.
    pub fn freeze(&self, node: usize) {
        self.bus.behaviour(node).freeze();
    }

    /// Ends [`freeze`](Self::freeze): the commands that wait are run, and the messages that came meanwhile are delivered.
    pub fn thaw(&self, node: usize) {
        self.bus.thaw(node);
    }

    /// Closes all connections of a node. It accepts new ones.
    pub async fn disconnect(&self, node: usize) {
        self.nodes[node].disconnect(true).await;
    }

    /// Closes a node's RDMA listener and its RDMA connections. TCP goes on.
    pub async fn close_rdma(&self, node: usize) {
        self.nodes[node].close_rdma().await;
    }

    /// Ends [`close_rdma`](Self::close_rdma).
    ///
    /// # Errors
    ///
    /// [`BindError`] if another program has taken the port.
    pub async fn open_rdma(&self, node: usize) -> Result<(), BindError> {
        self.nodes[node].open_rdma().await
    }
}

/// Lies.
impl MockCluster {
    /// Announces this host for a node, in all replies of all nodes.
    pub fn announce_endpoint(&self, node: usize, endpoint: Endpoint) {
        self.bus.change(|topology| topology.nodes[node].endpoint = endpoint);
    }

    /// Announces this port for a node, in all replies of all nodes: 0 for example, as nodes do that serve TLS alone.
    pub fn announce_port(&self, node: usize, port: u16) {
        self.bus.change(|topology| topology.nodes[node].addr.set_port(port));
    }

    /// Keeps the node's present view of the cluster: it learns of no more changes, until [`follow`](Self::follow).
    pub fn freeze_view(&self, node: usize) {
        self.bus.behaviour(node).set_view(Some(self.bus.topology()));
    }

    /// Ends [`freeze_view`](Self::freeze_view).
    pub fn follow(&self, node: usize) {
        self.bus.behaviour(node).set_view(None);
        self.bus.announce();
    }

    /// Lets a node answer every command with a key with `MOVED` to this node: two such nodes make an endless loop. `None` ends
    /// it.
    pub fn move_all_to(&self, node: usize, target: Option<usize>) {
        self.bus.behaviour(node).move_all_to(target);
    }

    /// Lets a node answer a command, by its full name such as `cluster|slots`, always with this reply. `None`: it runs again.
    /// The mock need not know the command.
    pub fn answer(&self, node: usize, command: &str, reply: Option<Reply>) {
        self.bus.behaviour(node).answer(command, reply.map(Answer::Always));
    }

    /// Lets a node answer the next calls of a command with these replies.
    pub fn answer_next(&self, node: usize, command: &str, replies: impl IntoIterator<Item = Reply>) {
        self.bus.behaviour(node).answer(command, Some(Answer::Once(replies.into_iter().collect())));
    }

    /// Lets a node answer every command with a key with this reply, such as `LOADING ...`. `None` ends it.
    pub fn answer_keyed(&self, node: usize, reply: Option<Reply>) {
        self.bus.behaviour(node).answer_keyed(reply.map(Answer::Always));
    }

    /// Lets a node answer its next commands with keys with these replies.
    pub fn answer_keyed_next(&self, node: usize, replies: impl IntoIterator<Item = Reply>) {
        self.bus.behaviour(node).answer_keyed(Some(Answer::Once(replies.into_iter().collect())));
    }
}
