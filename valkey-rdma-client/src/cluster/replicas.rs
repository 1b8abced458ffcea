//! [`ReadFrom`] chooses which node of a shard answers a command that only reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::node::Node;
use crate::config::{ReadCandidate, ReadFrom};

impl ReadFrom {
    /// Chooses between the primary and its replicas. `turn` counts the choices made so far.
    pub(super) fn choose<'a>(
        &self,
        primary: &'a Arc<Node>,
        replicas: &'a [Arc<Node>],
        turn: &AtomicUsize,
    ) -> &'a Arc<Node> {
        if replicas.is_empty() {
            return primary;
        }
        let turn = || turn.fetch_add(1, Ordering::Relaxed);
        match self {
            Self::Primary => primary,
            Self::PreferReplica => in_turn(replicas, turn(), |_| true).unwrap_or(primary),
            Self::RoundRobin => match turn() % (replicas.len() + 1) {
                0 => primary,
                at => in_turn(replicas, at, |_| true).unwrap_or(primary),
            },
            Self::Zone(zone) => {
                let is_near = |node: &Node| node.zone().as_deref() == Some(zone);
                let turn = turn();
                match in_turn(replicas, turn, is_near) {
                    Some(near) => near,
                    None if is_near(primary) => primary,
                    None => in_turn(replicas, turn, |_| true).unwrap_or(primary),
                }
            }
            Self::Custom(choose) => {
                let nodes = || std::iter::once(primary).chain(replicas);
                let zones: Vec<_> = nodes().map(|node| node.zone()).collect();
                let candidates: Vec<_> = nodes()
                    .zip(&zones)
                    .enumerate()
                    .map(|(at, (node, zone))| ReadCandidate {
                        address: node.address(),
                        is_primary: at == 0,
                        is_connected: node.live().is_some(),
                        zone: zone.as_deref(),
                    })
                    .collect();
                let replica = choose(&candidates).checked_sub(1).and_then(|at| replicas.get(at));
                replica.filter(|replica| replica.may_be_read()).unwrap_or(primary)
            }
        }
    }
}

/// The next usable node that fits, beginning at `turn`.
fn in_turn(nodes: &[Arc<Node>], turn: usize, fits: impl Fn(&Node) -> bool) -> Option<&Arc<Node>> {
    let in_order = (0..nodes.len()).map(|step| &nodes[turn.wrapping_add(step) % nodes.len()]);
    in_order.into_iter().find(|node| node.may_be_read() && node.is_usable() && fits(node))
}
