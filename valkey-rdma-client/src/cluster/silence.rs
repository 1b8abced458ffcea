//! [`SilenceWatch`]: notices nodes that leave commands unanswered, long before the commands' time limits.
//!
//! A frozen process keeps its connections open. The other nodes notice it by their bus and give its slots to a replica, but no
//! client hears of that from the node itself. So a silent primary makes the client read the map again, and if the map has the
//! slots elsewhere, the connection ends: commands that may run twice go to the new primary, and the others fail with what they
//! are, "may have run". New reads pass a silent replica over. Those that were sent to it wait until the map leaves it out, as servers
//! do with a replica that failed: one that only is slow stays in the map.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::warn;

use super::node::Node;
use super::refresh::{RefreshRequest, request_refresh};
use super::topology::Topology;
use crate::server::Server;
use crate::stats::ClusterCounters;
use valkey_rdma_transport::sync::{Mutex, lock};

/// What the task needs. It ends with the last client.
pub(super) struct SilenceWatch {
    pub(super) topology: Weak<Topology>,
    pub(super) counters: Arc<Mutex<ClusterCounters>>,
    pub(super) refresh: mpsc::WeakSender<RefreshRequest>,
    /// Connections whose node has left the map.
    pub(super) departed: mpsc::UnboundedReceiver<(Arc<Node>, Server)>,
    /// How long a node may leave commands unanswered.
    pub(super) limit: Duration,
}

/// A connection with commands in flight. It is kept although its node may have left the map.
struct Watched {
    node: Arc<Node>,
    client: Server,
    /// Counts what has been received.
    reads: u64,
    /// Since when that has not grown.
    since: Instant,
    /// True if the map named it a primary then.
    was_primary: bool,
}

impl Watched {
    /// Of a node that has left the map.
    fn departed(node: Arc<Node>, client: Server) -> Self {
        let reads = client.counters().reads;
        Self { node, client, reads, since: Instant::now(), was_primary: false }
    }
}

impl SilenceWatch {
    pub(super) async fn run(mut self) {
        let mut watched = Vec::new();
        let mut ticks = interval(self.limit.max(SHORTEST) / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(topology) = self.topology.upgrade() else { return };
            while let Ok((node, client)) = self.departed.try_recv() {
                // Unless it is known already.
                if !watched.iter().any(|watched: &Watched| watched.client.is_same(&client)) {
                    watched.push(Watched::departed(node, client));
                }
            }
            watched = self.look(&topology, watched);
        }
    }

    /// Looks at every connection with commands in flight. Returns them, for the next time.
    fn look(&self, topology: &Topology, before: Vec<Watched>) -> Vec<Watched> {
        let now = Instant::now();
        let map = topology.map();
        let members = map.nodes();
        let is_member = |node: &Arc<Node>| members.iter().any(|member| Arc::ptr_eq(member, node));
        let connected = members.iter().filter_map(|node| node.live().map(|client| (node.clone(), client)));
        // A node that has left the map may owe replies.
        let gone = before.iter().map(|watched| (watched.node.clone(), watched.client.clone()));
        let gone = gone.filter(|(node, client)| !node.live().is_some_and(|live| live.is_same(client)));
        let (mut kept, mut silent) = (Vec::new(), false);
        for (node, client) in connected.chain(gone) {
            let counters = client.counters();
            let earlier = before.iter().find(|watched| watched.client.is_same(&client));
            let has_answered = earlier.is_some_and(|earlier| earlier.reads != counters.reads);
            let is_primary = map.is_primary(&node);
            // What it has sent since the last look may be older than the loss of its slots.
            let lost_them_before = earlier.is_some_and(|earlier| !earlier.was_primary);
            if !is_primary && (counters.in_flight == 0 || has_answered && lost_them_before) {
                node.forget_slots();
            }
            // If it has other connections, commands take those, and none of them finds the one that has ended.
            if !client.is_whole() {
                node.lost(&client);
            }
            // One that was replaced says nothing of its node.
            let is_current = node.live().is_none_or(|live| live.is_same(&client));
            if counters.in_flight == 0 {
                if is_current {
                    node.set_silent_since(None);
                }
                continue;
            }
            let since = earlier.filter(|_| !has_answered).map_or(now, |earlier| earlier.since);
            let is_silent = now - since >= self.limit;
            silent |= is_silent;
            if is_current {
                node.set_silent_since(is_silent.then_some(since));
            }
            if is_current && is_silent {
                // Until the next look, and some more.
                node.pass_over_for(self.limit);
            }
            let has_lost_them = !is_primary && (node.had_slots() || !is_member(&node));
            if is_silent && has_lost_them {
                node.set_silent_since(None);
                warn!(node = %node.name(), "the cluster has given the silent node up; its connection ends");
                lock(&self.counters).given_up += 1;
                node.lost(&client);
                client.give_up();
            } else {
                kept.push(Watched { node, client, reads: counters.reads, since, was_primary: is_primary });
            }
        }
        if silent && let Some(refresh) = self.refresh.upgrade() {
            request_refresh(&refresh);
        }
        kept
    }
}

/// Looking more often than every 5 ms would cost more than it finds.
const SHORTEST: Duration = Duration::from_millis(10);
