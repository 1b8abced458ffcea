//! [`ReadFrom`]: which nodes of a cluster answer commands that only read.

use std::fmt;
use std::sync::Arc;

use crate::endpoint::NodeAddress;

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
    pub(crate) fn uses_replicas(&self) -> bool {
        !matches!(self, Self::Primary)
    }

    /// True if availability zones matter.
    pub(crate) fn uses_zones(&self) -> bool {
        matches!(self, Self::Zone(_) | Self::Custom(_))
    }
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
