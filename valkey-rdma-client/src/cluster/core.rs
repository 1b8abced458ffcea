//! [`Core`]: what all clones of a cluster client share.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;
use valkey_rdma_resp::Value;

use super::address::PortRules;
use super::discovery::{Sources, ask};
use super::learned::Learned;
use super::node::{DialSettings, Node};
use super::refresh::{RefreshRequest, RefreshTask, request_refresh};
use super::silence::SilenceWatch;
use super::slot_map::SlotMap;
use super::slots_reply::SLOTS;
use super::topology::Topology;
use crate::command::table::Access;
use crate::command::{Command, Commands};
use crate::config::Config;
use crate::dedicated::Dedicated;
use crate::endpoint::{Endpoint, NodeAddress, RdmaPort};
use crate::error::{Error, LostCause, LostConnection};
use crate::events::EventHub;
use crate::link::{Deadline, Failed, Members};
use crate::runtime::Runtime;
use crate::server::Server;
use crate::stats::{ClusterCounters, Purpose};

/// A connection to try a command on.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) node: Arc<Node>,
    pub(super) client: Server,
    /// True if the command must follow ASKING.
    pub(super) asking: bool,
}

impl Place {
    /// Sends a command on the shared connection, right behind ASKING if it must follow that.
    pub(super) async fn send(&self, command: Command, deadline: Option<Deadline>) -> Result<Value, Failed> {
        if !self.asking {
            return self.client.send(Commands::One(command), deadline).await.last();
        }
        // A server that refuses ASKING refuses the command too.
        let both = [&Command::new("ASKING"), &command].into_iter().collect();
        let asked = self.client.send(Commands::Many(both), deadline).await.last();
        asked.map_err(|failed| Failed { command: Some(Box::new(command)), ..failed })
    }

    /// Asks the node for a key, by a command that changes nothing and that no script answers. If the node does not serve the key, its error
    /// says which one does.
    pub(super) async fn ask_for(&self, key: &[u8], deadline: Option<Deadline>) -> Result<(), Error> {
        let asked = self.send(Command::new("EXISTS").arg(key).idempotent(), deadline).await;
        asked.map(drop).map_err(Error::from)
    }
}

pub(super) struct Core {
    /// The nodes to start from, and the settings that all nodes get.
    pub(super) endpoint: Endpoint,
    pub(super) config: Config,
    pub(super) topology: Arc<Topology>,
    pub(super) counters: Arc<Mutex<ClusterCounters>>,
    /// Descriptions that servers gave, by name; `None` if they know no such command either.
    pub(super) learned: Mutex<HashMap<String, Option<Arc<Learned>>>>,
    refresh: mpsc::Sender<RefreshRequest>,
    closed: watch::Sender<bool>,
    pub(super) runtime: Runtime,
}

impl Core {
    /// Asks the seeds for the map. Must run inside a runtime.
    pub(super) async fn connect(endpoint: Endpoint, config: &Config) -> Result<Self, Error> {
        let (seeds, runtime) = (endpoint.seeds(), Runtime::here());
        let template = seeds[0].clone();
        let mut node_config = config.clone();
        // Each node replaces its own connections.
        node_config.reconnect = None;
        node_config.read_replicas = config.cluster.read_from.uses_replicas();
        let settings = Arc::new(DialSettings {
            rules: PortRules {
                map: config.cluster.address_map.clone(),
                ..PortRules::new(template.clone(), config)
            },
            config: node_config,
            members: Members::default(),
            backoff: config.reconnect.unwrap_or_default(),
            events: EventHub::new(),
            has_told: AtomicBool::new(false),
            server_is_back: watch::Sender::default(),
            runtime: runtime.clone(),
        });
        let seeds = seeds.into_iter().map(|seed| {
            let address = NodeAddress::new(seed.host(), seed.port());
            let endpoint = seed.with_rdma_port(RdmaPort::Same);
            Arc::new(Node::new(address, settings.clone(), Some(endpoint)))
        });
        let seeds: Vec<_> = seeds.collect();
        let (departed, departures) = mpsc::unbounded_channel();
        let departed = config.cluster.silence_limit.map(|_| departed);
        let topology = Arc::new(Topology::new(settings, seeds.clone(), departed));
        let counters = Arc::<Mutex<ClusterCounters>>::default();
        let (limit, zones) = (template.timeout(), config.cluster.read_from.uses_zones());
        topology.install(ask(&Sources { seeds, ..Sources::default() }, limit, zones).await?);
        let (refresh, requests) = mpsc::channel(MOST_REQUESTS);
        let task = RefreshTask {
            topology: Arc::downgrade(&topology),
            counters: counters.clone(),
            requests,
            period: config.cluster.refresh_interval,
            shortest: config.cluster.min_refresh_interval,
            limit,
            zones,
        };
        let closed = watch::Sender::new(false);
        let mut ends = closed.subscribe();
        runtime.spawn(async move {
            tokio::select! {
                () = task.run() => {}
                // No node would answer any more.
                _ = ends.wait_for(|closed| *closed) => {}
            }
        });
        if let Some(limit) = config.cluster.silence_limit {
            let (topology, refresh) = (Arc::downgrade(&topology), refresh.downgrade());
            let counters = counters.clone();
            let watch = SilenceWatch { topology, counters, refresh, departed: departures, limit };
            runtime.spawn(watch.run());
        }
        Ok(Self {
            endpoint,
            config: config.clone(),
            topology,
            counters,
            learned: Mutex::default(),
            refresh,
            closed,
            runtime,
        })
    }

    /// Takes note of a failure after which a command is not tried again.
    pub(super) fn note_failure(&self, place: &Place, error: &Error) {
        if let Error::Lost(_) = error {
            place.node.lost(&place.client);
        }
        if let Error::Lost(_) | Error::TimedOut(_) = error {
            self.request_refresh();
        }
    }

    /// Asks for a new map soon. Never waits.
    pub(super) fn request_refresh(&self) {
        request_refresh(&self.refresh);
    }

    /// Asks for a new map again and again, for as long as a command waits: the task that reads it limits how often.
    pub(super) async fn request_refreshes(&self) -> Infallible {
        let interval = self.config.cluster.min_refresh_interval.max(SHORTEST_WAIT);
        loop {
            sleep(interval).await;
            self.request_refresh();
        }
    }

    /// A connection of its own to a place, after ASKING where that must precede a command. This, and the calls of the connection, leave a frozen
    /// node that was replaced.
    pub(super) async fn checkout(&self, place: &Place, purpose: Purpose) -> Result<Dedicated, Error> {
        match self.config.cluster.silence_limit {
            // The map need not know a node that ASK names: that it does not have it says nothing.
            Some(limit) if !place.asking => {
                let replaced = self.replacement_of(&place.node);
                place.client.checkout_until_replaced(purpose, limit, replaced).await
            }
            _ => {
                let mut connection = place.client.checkout(purpose).await?;
                if place.asking {
                    // As connecting does, this takes time beside that of the command.
                    let limit = place.client.endpoint().timeout();
                    connection.exchange(Command::new("ASKING").timeout(limit)).await?;
                }
                Ok(connection)
            }
        }
    }

    /// Futures that complete when a node has lost its slots to another, or has left the map. Each also requests a new map. None keeps the
    /// client open.
    fn replacement_of(
        &self,
        node: &Node,
    ) -> impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static + use<> {
        let (topology, refresh) = (Arc::downgrade(&self.topology), self.refresh.downgrade());
        let address = node.address().clone();
        let was_primary = self.topology.map().has(&address, true);
        move || {
            if let Some(refresh) = refresh.upgrade() {
                request_refresh(&refresh);
            }
            let (topology, address) = (topology.clone(), address.clone());
            Box::pin(async move {
                let Some(mut changes) = topology.upgrade().map(|topology| topology.changes()) else {
                    return pending().await;
                };
                loop {
                    // Subscribed before the map is looked at.
                    let has = |topology: Arc<Topology>| topology.map().has(&address, was_primary);
                    if topology.upgrade().is_some_and(|topology| !has(topology)) {
                        return;
                    }
                    if changes.changed().await.is_err() {
                        return pending().await;
                    }
                }
            })
        }
    }

    /// Asks for a new map, and waits until it was read, with or without success.
    pub(super) async fn refreshed(&self) {
        drop(self.refresh_and_wait(false).await);
    }

    /// As [`refreshed`](Self::refreshed), without waiting for the shortest interval between readings to pass.
    ///
    /// # Errors
    /// If the map could not be read.
    pub(super) async fn refreshed_now(&self) -> Result<(), Error> {
        self.refresh_and_wait(true).await
    }

    async fn refresh_and_wait(&self, is_urgent: bool) -> Result<(), Error> {
        let (done, waits) = oneshot::channel();
        let sent = self.refresh.send(RefreshRequest { done: Some(done), is_urgent }).await;
        let outcome = if sent.is_ok() { waits.await.ok() } else { None };
        // Without an outcome the client has ended.
        outcome.unwrap_or_else(|| Err(self.closed_error()))
    }

    /// The node for a slot, and for what the command does.
    #[inline]
    pub(super) fn choose<'a>(&self, map: &'a SlotMap, slot: u16, access: Access) -> Option<&'a Arc<Node>> {
        let shard = map.shard(slot)?;
        Some(match access {
            Access::Read => {
                self.config.cluster.read_from.choose(&shard.primary, &shard.replicas, &shard.turn)
            }
            Access::Write | Access::Neither => &shard.primary,
        })
    }

    /// The node for a slot, and its connection if it has one.
    #[inline]
    pub(super) fn place(&self, slot: u16, access: Access) -> Result<Place, Option<Arc<Node>>> {
        let map = self.topology.map();
        let node = self.choose(&map, slot, access).ok_or(None)?;
        match node.live() {
            Some(client) => Ok(Place { node: node.clone(), client, asking: false }),
            None => Err(Some(node.clone())),
        }
    }

    /// Some primary, preferably one that is connected, and rather another than this, and than one that leaves commands unanswered.
    pub(super) fn choose_any<'a>(
        &self,
        map: &'a SlotMap,
        avoided: Option<&Arc<Node>>,
    ) -> Option<&'a Arc<Node>> {
        let shards = map.shards();
        let first = fastrand::usize(..shards.len().max(1));
        let in_turn = (0..shards.len()).map(|step| &shards[(first + step) % shards.len()].primary);
        let mut others = in_turn.clone().filter(|node| {
            node.silent_for().is_none() && avoided.is_none_or(|avoided| !Arc::ptr_eq(avoided, node))
        });
        let connected = others.clone().find(|node| node.live().is_some());
        // Else one that did not fail the last time.
        let fresh = || others.clone().find(|node| node.last_error().is_none());
        connected.or_else(fresh).or_else(|| others.next()).or_else(|| in_turn.clone().next())
    }

    /// The slot whose node gets commands that any node may run, so that they stay in order: this one. While it has no node, or one that leaves
    /// commands unanswered or cannot be connected to, a slot of another.
    pub(super) fn slot_beside(&self, slot: u16) -> u16 {
        let map = self.topology.map();
        if map.shard(slot).is_some_and(|shard| shard.primary.may_answer()) {
            return slot;
        }
        let mut others = map.primaries();
        others.retain(|(node, _)| node.may_answer());
        // Connected ones first.
        others.sort_by_key(|(node, _)| node.live().is_none());
        others.into_iter().find_map(|(_, slot)| slot).unwrap_or(slot)
    }

    /// The slot whose node gets commands without keys that go together.
    pub(super) fn any_slot(&self) -> u16 {
        self.slot_beside(fastrand::u16(..SLOTS as u16))
    }

    /// Why nothing can connect any more: the client was closed, or the runtime of its connections has shut down.
    pub(super) fn end(&self) -> Option<LostCause> {
        match *self.closed.borrow() {
            true => Some(LostCause::Closed),
            false => self.refresh.is_closed().then_some(LostCause::Stopped),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.end().is_some()
    }

    /// The error of calls after that which concern no node.
    pub(super) fn closed_error(&self) -> Error {
        let cause = self.end().unwrap_or(LostCause::Closed);
        LostConnection::new(CLUSTER.into(), Arc::new(cause), false).into()
    }

    /// Waits until nothing can connect any more.
    pub(super) async fn ended(&self) {
        let mut closed = self.closed.subscribe();
        tokio::select! {
            // The sender lives as long as this.
            _ = closed.wait_for(|closed| *closed) => {}
            () = self.refresh.closed() => {}
        }
    }

    /// Refuses new connections. Returns those that there are.
    pub(super) fn close(&self) -> Vec<Server> {
        if !self.closed.send_replace(true) {
            self.topology.events().release();
        }
        self.topology.every_node().into_iter().filter_map(|node| node.close()).collect()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // Attempts to connect that wait outlive it: they have their nodes.
        drop(self.close());
    }
}

/// Stands for a node in errors about several.
pub(super) const CLUSTER: &str = "the cluster";

/// No command asks for a map more often, whatever is configured.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);

/// More requests for a map than this are the same request.
const MOST_REQUESTS: usize = 64;
