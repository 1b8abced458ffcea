//! [`ReadFrom`]: which node of a shard answers a command that only reads.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::address::NodeAddress;
use super::node::Node;

/// Which nodes answer commands that only read. Replicas may be behind their primary, so their answers may be old.
///
/// A replica that cannot be reached, still loads its data or has lost its primary is passed over for the moment that
/// [`Config::reconnect`](crate::Config::reconnect) sets, and longer while it cannot be connected to. Everything else is
/// sent to primaries. A user who may not run `READONLY` reads from primaries only, whatever is set here: the log has one warning.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum ReadFrom {
    /// Primaries only. The default.
    #[default]
    Primary,
    /// The replicas of the shard in turn; its primary if it has none.
    PreferReplica,
    /// All nodes of the shard in turn, the primary included.
    RoundRobin,
    /// The replicas in this availability zone in turn, then the primary if it is there, then other replicas, then the
    /// primary. Zones are those of CLUSTER SHARDS.
    Zone(String),
    /// A function chooses: see [`custom`](Self::custom).
    Custom(Choice),
}

type Choice = Arc<dyn Fn(&[ReadCandidate<'_>]) -> usize + Send + Sync>;

/// A node that could answer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReadCandidate<'a> {
    /// Its announced address.
    pub address: &'a NodeAddress,
    /// True for the primary of the shard.
    pub is_primary: bool,
    /// True if the client is connected to it.
    pub is_connected: bool,
    /// Its availability zone, if known.
    pub zone: Option<&'a str>,
}

impl ReadFrom {
    /// A function chooses the node, by its index. The primary comes first; an index out of range means the primary. The
    /// function runs for every reading command, so it must be fast.
    pub fn custom(choose: impl Fn(&[ReadCandidate<'_>]) -> usize + Send + Sync + 'static) -> Self {
        Self::Custom(Arc::new(choose))
    }

    /// True if replicas are read at all.
    pub(super) fn uses_replicas(&self) -> bool {
        !matches!(self, Self::Primary)
    }

    /// True if availability zones matter.
    pub(super) fn uses_zones(&self) -> bool {
        matches!(self, Self::Zone(_) | Self::Custom(_))
    }

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

impl fmt::Debug for ReadFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Primary => f.write_str("Primary"),
            Self::PreferReplica => f.write_str("PreferReplica"),
            Self::RoundRobin => f.write_str("RoundRobin"),
            Self::Zone(zone) => f.debug_tuple("Zone").field(zone).finish(),
            Self::Custom(_) => f.write_str("Custom"),
        }
    }
}
