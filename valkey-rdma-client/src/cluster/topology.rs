//! [`Topology`]: the current slot map and the nodes, replaced by what the cluster says.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use super::discovery::{Report, Sources};
use super::node::{DialSettings, Facts, Node};
use super::slot_map::{Shard, SlotMap};
use super::slots_reply::View;
use crate::config::Backoff;
use crate::endpoint::NodeAddress;
use crate::events::{ConnectionEvent, EventHub};
use crate::server::Server;
use valkey_rdma_transport::sync::lock;

/// The map and the nodes. Reading the map takes no lock; replacing it holds one, but never across an `await`.
pub(super) struct Topology {
    map: ArcSwap<SlotMap>,
    /// Counts the maps, and wakes commands that wait for another.
    version: watch::Sender<u64>,
    known: Mutex<Known>,
    seeds: Vec<Arc<Node>>,
    settings: Arc<DialSettings>,
    /// Takes the connections of nodes that leave and may owe replies, if they are watched.
    departed: Option<mpsc::UnboundedSender<(Arc<Node>, Server)>>,
}

#[derive(Default)]
struct Known {
    nodes: HashMap<NodeAddress, Arc<Node>>,
    /// The view that the current map was made from, before patches.
    view: Option<View>,
    /// True if MOVED has changed the map since.
    patched: bool,
    /// True once a node has said the same id of itself as in its map. Only then, connections are checked: a proxy may make up either.
    ids_agree: bool,
}

impl Topology {
    pub(super) fn new(
        settings: Arc<DialSettings>,
        seeds: Vec<Arc<Node>>,
        departed: Option<mpsc::UnboundedSender<(Arc<Node>, Server)>>,
    ) -> Self {
        Self {
            map: ArcSwap::from_pointee(SlotMap::empty()),
            version: watch::Sender::new(0),
            known: Mutex::default(),
            seeds,
            settings,
            departed,
        }
    }

    /// Where connections to nodes are reported.
    pub(super) fn events(&self) -> &EventHub {
        &self.settings.events
    }

    /// The waits between attempts to connect.
    pub(super) fn backoff(&self) -> Backoff {
        self.settings.backoff
    }

    /// Is sent to when a node was connected, or when others became nodes.
    pub(super) fn server_is_back(&self) -> watch::Receiver<()> {
        self.settings.server_is_back.subscribe()
    }

    /// The current map. The guard must not be kept across an `await`.
    pub(super) fn map(&self) -> Guard<Arc<SlotMap>> {
        self.map.load()
    }

    /// Sees every new map.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Completes when the map does not name this node as a primary.
    pub(super) async fn replaced(&self, node: &Arc<Node>) {
        let mut changes = self.changes();
        // The sender lives as long as `self`.
        while self.map().is_primary(node) && changes.changed().await.is_ok() {}
    }

    pub(super) fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// The nodes to ask for the map, the most promising first: connected ones, then others; and the seeds. Shuffled, so that clients do not
    /// all ask the same nodes.
    pub(super) fn sources(&self) -> Sources {
        let nodes = self.map.load().nodes();
        let mut seeds = self.seeds.clone();
        fastrand::shuffle(&mut seeds);
        let (mut connected, mut others): (Vec<_>, Vec<_>) =
            nodes.into_iter().partition(|node| node.live().is_some());
        fastrand::shuffle(&mut connected);
        // Primaries first would ask the dead one again and again.
        fastrand::shuffle(&mut others);
        connected.append(&mut others);
        let ids = lock(&self.known).view.as_ref().map(View::distinctive_ids).unwrap_or_default();
        Sources { nodes: connected, seeds, ids }
    }

    /// Makes the map that a node reports the current one. Returns whether it differs from the last report. A map
    /// without slots does not replace one that has some, because its nodes may still serve them.
    pub(super) fn install(&self, report: Report) -> bool {
        if report.is_empty() && !self.map.load().shards().is_empty() {
            warn!("the nodes that answer know no slots; the slot map stays");
            return false;
        }
        let Report { view, id, zones, .. } = report;
        let mut known = lock(&self.known);
        known.ids_agree |= id.is_some_and(|id| view.ids().contains(&id));
        let ids = view.distinctive_ids();
        let are_distinct = !ids.is_empty();
        let has_others = known.ids_agree && self.settings.members.set(ids);
        if known.view.as_ref() == Some(&view) && !(known.patched && self.has_dead_primary()) {
            // Nothing is newer than the patches that the current map has.
            let unmapped = known.take_unmapped(&self.map.load());
            drop(known);
            self.part_with(unmapped);
            self.disconnect_seeds();
            return false;
        }
        known.patched = false;
        let mut old = std::mem::take(&mut known.nodes);
        let is_checked = are_distinct && known.ids_agree;
        let mut replaced = Vec::new();
        let mut shards = Vec::with_capacity(view.shards.len());
        for members in &view.shards {
            let mut nodes = members.iter().map(|member| {
                let node = known.nodes.get(&member.address).cloned();
                let node = node
                    .or_else(|| old.remove(&member.address))
                    .unwrap_or_else(|| self.make(&member.address));
                let id = member.id.as_ref();
                let zone = id.and_then(|id| zones.get(id)).cloned();
                let zone = zone.or_else(|| node.zone());
                // The id by the former map, or what a seed has said before there was any.
                let former = node.facts().id.filter(|_| is_checked);
                let is_other = former.is_some_and(|former| id.is_some_and(|id| *id != former));
                // Several nodes behind one address follow each other there.
                if is_other && view.nodes_at(&member.address) == 1 {
                    replaced.push(node.clone());
                }
                node.set_facts(Facts { id: id.cloned(), zone, port_assumed: member.port_assumed });
                known.nodes.insert(member.address.clone(), node.clone());
                node
            });
            if let Some(primary) = nodes.next() {
                shards.push(Arc::new(Shard::new(primary, nodes.collect())));
            }
        }
        let map = SlotMap::new(shards, &view.ranges);
        info!(shards = map.shards().len(), slots = view.covered(), "new slot map");
        // What they are from now on is not known.
        old.values().for_each(|node| node.set_facts(Facts::default()));
        known.view = Some(view);
        let before = self.map.swap(Arc::new(map));
        drop(known);
        self.report_primaries(&before);
        self.part_with(old.into_values().chain(replaced));
        self.disconnect_seeds();
        self.version.send_modify(|version| *version += 1);
        if has_others {
            // A server that was none of the nodes may be one now.
            self.settings.server_is_back.send_replace(());
        }
        true
    }

    /// Nodes that left, or whose address another has now: commands in flight keep their connection until their replies come.
    fn part_with(&self, nodes: impl IntoIterator<Item = Arc<Node>>) {
        for node in nodes {
            if let (Some(departed), Some(client)) = (&self.departed, node.live()) {
                // The watch ends with the client.
                let _ended = departed.send((node.clone(), client));
            }
            node.disconnect();
        }
    }

    /// Patches one slot, as MOVED says. Returns the node.
    pub(super) fn moved(&self, slot: u16, address: &NodeAddress) -> Arc<Node> {
        let mut known = lock(&self.known);
        let node = known.nodes.entry(address.clone()).or_insert_with(|| self.make(address)).clone();
        let map = self.map.load_full();
        if !map.is_primary_of(slot, &node) {
            debug!(slot, node = %node.name(), "slot moved");
            self.map.store(Arc::new(map.moved(slot, &node)));
            known.patched = true;
            drop(known);
            self.report_primaries(&map);
            self.version.send_modify(|version| *version += 1);
        }
        node
    }

    /// Reports that the current map has other primaries than the one before. The first map is not reported.
    fn report_primaries(&self, before: &SlotMap) {
        let (before, now) = (primaries(before), primaries(&self.map.load()));
        if before != now && !before.is_empty() {
            // Unlocked: a report of a node's event looks at what is known.
            self.settings.events.pass(|| ConnectionEvent::PrimariesChanged { primaries: now.clone() });
        }
    }

    /// The node with this address, which ASK names. It need not be in the map.
    pub(super) fn node(&self, address: &NodeAddress) -> Arc<Node> {
        let mut known = lock(&self.known);
        known.nodes.entry(address.clone()).or_insert_with(|| self.make(address)).clone()
    }

    /// The node with this address, if there is one.
    pub(super) fn find(&self, address: &NodeAddress) -> Option<Arc<Node>> {
        lock(&self.known).nodes.get(address).cloned()
    }

    /// Every node that may have a connection, each once.
    pub(super) fn every_node(&self) -> Vec<Arc<Node>> {
        let known = lock(&self.known);
        known.nodes.values().cloned().chain(self.other_seeds(&known)).collect()
    }

    /// True if the map sends commands to a node that cannot be reached: then a patch may be wrong.
    fn has_dead_primary(&self) -> bool {
        self.map.load().shards().iter().any(|shard| shard.primary.last_error().is_some())
    }

    /// A seed that is a node of the cluster under the same address keeps its connection.
    fn make(&self, address: &NodeAddress) -> Arc<Node> {
        let seed = self.seeds.iter().find(|seed| seed.address() == address);
        let same = seed.filter(|_| self.settings.rules.is_direct());
        same.cloned().unwrap_or_else(|| Arc::new(Node::new(address.clone(), self.settings.clone(), None)))
    }

    /// Connections to seeds that the cluster announces under other addresses are not needed any more. While it has no nodes, a seed reports them.
    fn disconnect_seeds(&self) {
        if self.map.load().shards().is_empty() {
            return;
        }
        // Unlocked before a node is locked, because a report of a node's event looks at what is known.
        let others = self.other_seeds(&lock(&self.known));
        for seed in others {
            seed.set_facts(Facts::default());
            seed.disconnect();
        }
    }

    /// The seeds that are not nodes of the map.
    fn other_seeds(&self, known: &Known) -> Vec<Arc<Node>> {
        let is_known =
            |seed: &Arc<Node>| known.nodes.get(seed.address()).is_some_and(|node| Arc::ptr_eq(node, seed));
        self.seeds.iter().filter(|seed| !is_known(seed)).cloned().collect()
    }
}

impl Known {
    /// Takes out the nodes that only redirections have named: a node that always names others would have us keep them all.
    fn take_unmapped(&mut self, map: &SlotMap) -> Vec<Arc<Node>> {
        let view = self.view.iter().flat_map(|view| view.shards.iter().flatten()).map(|node| &node.address);
        let mapped = map.nodes();
        let named: HashSet<_> = view.chain(mapped.iter().map(|node| node.address())).collect();
        self.nodes.extract_if(|address, _| !named.contains(address)).map(|(_, node)| node).collect()
    }
}

/// The addresses of the primaries, sorted.
fn primaries(map: &SlotMap) -> Vec<NodeAddress> {
    let mut primaries: Vec<_> = map.shards().iter().map(|shard| shard.primary.address().clone()).collect();
    primaries.sort_unstable();
    primaries
}

#[cfg(test)]
mod tests {
    use valkey_rdma_resp::Value;

    use super::super::address::PortRules;
    use super::super::slots_reply::SLOTS;
    use super::*;
    use crate::config::Config;
    use crate::link::Members;
    use crate::runtime::Runtime;

    fn topology() -> Topology {
        let settings = DialSettings {
            rules: PortRules::new("valkey://seed:1".parse().expect("a URL"), &Config::default()),
            config: Config::default(),
            members: Members::default(),
            backoff: Default::default(),
            events: EventHub::new(),
            has_told: Default::default(),
            server_is_back: watch::Sender::default(),
            runtime: Runtime::here(),
        };
        Topology::new(Arc::new(settings), Vec::new(), None)
    }

    /// All slots at one node.
    fn report() -> Report {
        let address = vec![Value::Bulk("a".into()), Value::Int(1)];
        let range = vec![Value::Int(0), Value::Int(SLOTS as i64 - 1), Value::Array(address)];
        let reply = Value::Array(vec![Value::Array(range)]);
        let view = View::read(&reply, &NodeAddress::new("seed", 1), None).expect("a map");
        Report { view, id: None, epoch: 0, zones: HashMap::new() }
    }

    /// Half of the slots at `a`, which reports it, and half at another node with this id.
    fn report_with(id: &'static str) -> Report {
        let range = |first, last, host: &'static str, id: &'static str| {
            let node = vec![Value::Bulk(host.into()), Value::Int(1), Value::Bulk(id.into())];
            Value::Array(vec![Value::Int(first), Value::Int(last), Value::Array(node)])
        };
        let reply = Value::Array(vec![range(0, 8191, "a", "id-a"), range(8192, 16383, "b", id)]);
        let view = View::read(&reply, &NodeAddress::new("a", 1), None).expect("a map");
        Report { view, id: Some("id-a".to_owned()), epoch: 0, zones: HashMap::new() }
    }

    /// One that was reset and has joined again has another id.
    #[tokio::test]
    async fn connections_accept_the_nodes_of_the_present_map() {
        let topology = topology();
        let members = topology.settings.members.of_one_node();
        members.require(true);
        for (id, former) in [("id-b", "id-c"), ("id-c", "id-b")] {
            assert!(topology.install(report_with(id)));
            assert!(members.accept("id-a") && members.accept(id) && !members.accept(former), "{id}");
            assert_eq!(topology.sources().ids, HashSet::from(["id-a".to_owned(), id.to_owned()]));
        }
    }

    /// What was refused may be a node now: it has taken the place of another under its name, for example.
    #[tokio::test]
    async fn attempts_to_connect_do_not_wait_when_others_have_become_nodes() {
        let topology = topology();
        for (id, is_hurried) in [("id-b", true), ("id-b", false), ("id-c", true)] {
            let back = topology.server_is_back();
            topology.install(report_with(id));
            assert_eq!(back.has_changed().expect("the topology lives"), is_hurried, "{id}");
        }
    }

    /// A proxy that makes up the ids of the map.
    #[tokio::test]
    async fn connections_are_not_checked_if_the_reporting_node_is_not_in_its_own_map() {
        let topology = topology();
        assert!(topology.install(Report { id: Some("id-proxy".to_owned()), ..report_with("id-b") }));
        let members = topology.settings.members.of_one_node();
        members.require(true);
        assert!(!members.are_compared());
    }

    #[tokio::test]
    async fn nodes_that_only_ask_has_named_are_forgotten_with_the_next_map() {
        let topology = topology();
        assert!(topology.install(report()));
        for port in 1..=100 {
            topology.node(&NodeAddress::new("stray", port));
        }
        let kept = topology.moved(7, &NodeAddress::new("moved", 1));
        assert!(!topology.install(report()), "nothing new");
        let mut left: Vec<_> = topology.every_node().iter().map(|node| node.name().to_string()).collect();
        left.sort_unstable();
        assert_eq!(left, ["a:1", "moved:1"]);
        assert!(topology.map().is_primary_of(7, &kept), "the patch stays");
    }

    #[tokio::test]
    async fn a_slot_that_moves_for_ever_leaves_no_nodes_behind() {
        let topology = topology();
        assert!(topology.install(report()));
        let first = NodeAddress::new("a", 1);
        for port in 1..=100 {
            topology.moved(7, &NodeAddress::new("stray", port));
            topology.moved(7, &first);
            topology.moved(7, &NodeAddress::new("another", port));
        }
        let primaries: Vec<_> = primaries(&topology.map()).iter().map(ToString::to_string).collect();
        assert_eq!(primaries, ["a:1", "another:100"]);
        assert!(!topology.install(report()), "nothing new");
        assert_eq!(topology.every_node().len(), 2);
        assert!(topology.map().is_complete());
        assert_eq!(topology.map().slots_of(&first).count(), SLOTS - 1);
    }
}
