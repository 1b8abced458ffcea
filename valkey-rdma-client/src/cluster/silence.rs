//! [`SilenceWatch`]: notices nodes that leave commands unanswered, long before the commands' time limits.
//!
//! A frozen process or a dead fabric keeps its connections open. The nodes notice it by their bus and give its slots to a
//! replica, but no client hears of that from the node itself. So a silent node makes the client read the map again, and if
//! the map has the slots elsewhere, the connection ends: commands that may run twice go to the new primary, and the others
//! fail with what they are, "may have run".

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::warn;

use super::counters::Counters;
use super::node::Node;
use super::refresh::RefreshRequest;
use super::topology::Topology;
use crate::client::Client;

/// What the task needs. It ends with the last client.
pub(super) struct SilenceWatch {
    pub(super) topology: Weak<Topology>,
    pub(super) counters: Arc<Counters>,
    pub(super) refresh: mpsc::WeakSender<RefreshRequest>,
    /// How long a node may leave commands unanswered.
    pub(super) limit: Duration,
}

/// A connection with commands in flight. It is kept although its node may have left the map.
struct Watched {
    node: Arc<Node>,
    client: Client,
    /// Counts what has been received.
    reads: u64,
    /// Since when that has not grown.
    since: Instant,
}

impl SilenceWatch {
    pub(super) async fn run(self) {
        let mut watched = Vec::new();
        let mut ticks = interval(self.limit.max(SHORTEST) / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(topology) = self.topology.upgrade() else { return };
            watched = self.look(&topology, watched);
        }
    }

    /// Looks at every connection with commands in flight. Returns them, for the next time.
    fn look(&self, topology: &Topology, before: Vec<Watched>) -> Vec<Watched> {
        let now = Instant::now();
        let map = topology.map();
        let connected = map.nodes().into_iter().filter_map(|node| Some((node.clone(), node.live()?)));
        // A node that has left the map may owe replies.
        let gone = before.iter().map(|watched| (watched.node.clone(), watched.client.clone()));
        let gone = gone.filter(|(node, client)| !node.live().is_some_and(|live| live.is_same(client)));
        let (mut kept, mut silent) = (Vec::new(), false);
        for (node, client) in connected.chain(gone) {
            let counters = client.counters();
            if counters.in_flight == 0 {
                continue;
            }
            let earlier = before.iter().find(|watched| watched.client.is_same(&client));
            let since = match earlier {
                Some(earlier) if earlier.reads == counters.reads => earlier.since,
                _ => now,
            };
            let is_silent = now - since >= self.limit;
            silent |= is_silent;
            if is_silent && !map.is_primary(&node) {
                warn!(node = %node.name(), "a silent node is not a primary any more; its connection ends");
                self.counters.given_up.add();
                node.set_usable(false);
                node.lost(&client);
                client.give_up();
            } else {
                kept.push(Watched { node, client, reads: counters.reads, since });
            }
        }
        if silent && let Some(refresh) = self.refresh.upgrade() {
            // A full channel has requests enough.
            let _full = refresh.try_send(None);
        }
        kept
    }
}

/// Looking more often than every 5 ms would cost more than it finds.
const SHORTEST: Duration = Duration::from_millis(10);
