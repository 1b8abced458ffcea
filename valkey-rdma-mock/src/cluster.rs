//! [`MockCluster`]: a Valkey Cluster of mocks, in process.

mod builder;
mod control;
mod node;

pub use builder::{MockClusterBuilder, Transports};

use std::fmt;
use std::sync::Arc;

use crate::membership::{Bus, slot_of};
use node::Node;
use valkey_rdma_server::BindError;

/// A Valkey Cluster of [`Mock`](crate::Mock)s, in process, whose slots move and whose nodes fail on command.
///
/// ```
/// use valkey_rdma_mock::MockCluster;
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let cluster = MockCluster::start(3).await?;
/// for url in cluster.urls() {
///     println!("{url}"); // emulated://127.0.0.1:49152
/// }
/// # Ok::<_, valkey_rdma_mock::BindError>(())
/// # }).unwrap();
/// ```
///
/// Nodes have numbers: first the primaries, which share the slots equally, then the replicas. Numbers stay when roles change.
/// Every change holds for all nodes when its call returns. Nothing happens on its own: a killed primary is replaced by
/// [`fail_over`](Self::fail_over), and clients get `CLUSTERDOWN` after [`set_down`](Self::set_down).
///
/// # Differences from Valkey
///
/// - Primary and replicas of a shard have one set of data: a replica never lags, and nothing is lost in a failover.
/// - All nodes learn of a change at once, unless [`freeze_view`](Self::freeze_view) keeps one from it.
/// - Clients that track or watch keys on one node do not hear of changes that come through another node.
/// - No `MIGRATE`, `CLUSTER MEET`, `ADDSLOTS` and the like: methods do that. `CLUSTER SETSLOT` and `FAILOVER` work.
pub struct MockCluster {
    bus: Arc<Bus>,
    nodes: Vec<Node>,
}

impl MockCluster {
    /// Starts this many primaries without replicas, on the emulated device.
    ///
    /// # Errors
    ///
    /// [`BindError`] if a node cannot listen.
    pub async fn start(primaries: usize) -> Result<Self, BindError> {
        Self::builder(primaries).start().await
    }

    /// Starts building a cluster of this many primaries.
    pub fn builder(primaries: usize) -> MockClusterBuilder {
        MockClusterBuilder::new(primaries)
    }

    /// The client URLs of all nodes: RDMA if they have it, else TCP.
    pub fn urls(&self) -> Vec<String> {
        (0..self.nodes.len()).map(|node| self.url(node)).collect()
    }

    /// The client URL of one node: RDMA if it has it, else TCP.
    pub fn url(&self, node: usize) -> String {
        self.nodes[node].url()
    }

    /// The TCP URL of one node, if it listens on TCP.
    pub fn tcp_url(&self, node: usize) -> Option<String> {
        self.nodes[node].tcp_url()
    }

    /// How many nodes there are, killed ones included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if the cluster has 0 nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node that serves a key.
    ///
    /// # Panics
    ///
    /// If no node serves its slot.
    pub fn node_of(&self, key: impl AsRef<[u8]>) -> usize {
        let slot = slot_of(key.as_ref());
        self.bus.topology().owner(slot).unwrap_or_else(|| panic!("slot {slot} is not served"))
    }

    /// The slot of a key.
    pub fn slot(key: impl AsRef<[u8]>) -> u16 {
        slot_of(key.as_ref())
    }

    /// A key that this primary serves; another one for each `number`.
    ///
    /// # Panics
    ///
    /// If the node serves no slot.
    pub fn key_of(&self, node: usize, number: usize) -> String {
        let topology = self.bus.topology();
        assert!(topology.ranges().iter().any(|(.., owner)| *owner == node), "node {node} serves no slot");
        let keys = (0u64..).map(|n| format!("key:{n}"));
        let mut keys = keys.filter(|key| topology.owner(slot_of(key.as_bytes())) == Some(node));
        keys.nth(number).expect("there are endless keys")
    }

    /// The slots that a node serves: first and last of each run.
    pub fn slots_of(&self, node: usize) -> Vec<std::ops::RangeInclusive<u16>> {
        let ranges = self.bus.topology().ranges().into_iter();
        ranges.filter(|(.., owner)| *owner == node).map(|(first, last, _)| first..=last).collect()
    }

    /// The replicas of a primary.
    pub fn replicas_of(&self, primary: usize) -> Vec<usize> {
        self.bus.topology().replicas_of(primary).collect()
    }

    /// The primary of a node's shard: the node itself if it is one.
    pub fn primary_of(&self, node: usize) -> usize {
        self.bus.topology().primary_of(node)
    }

    /// The node's id in `CLUSTER NODES`. No node of another cluster in this process has it.
    pub fn id(&self, node: usize) -> String {
        self.bus.topology().nodes[node].id.to_string()
    }

    /// The address that the node announces, as redirections name it.
    pub fn announced(&self, node: usize) -> String {
        let topology = self.bus.topology();
        let node = &topology.nodes[node];
        format!("{}:{}", node.host(), node.addr.port())
    }

    /// How often a command was called on a node, by its full name in lower case: `get`, `cluster|slots`. Refused and redirected
    /// calls count too.
    pub fn calls(&self, node: usize, command: &str) -> u64 {
        self.bus.behaviour(node).calls(command)
    }

    /// Same as [`calls`](Self::calls), over all nodes.
    pub fn calls_everywhere(&self, command: &str) -> u64 {
        (0..self.nodes.len()).map(|node| self.calls(node, command)).sum()
    }

    /// How many connections a node serves.
    pub async fn connections(&self, node: usize) -> usize {
        self.nodes[node].connections().await
    }
}

impl fmt::Debug for MockCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockCluster").field("nodes", &self.urls()).finish_non_exhaustive()
    }
}
