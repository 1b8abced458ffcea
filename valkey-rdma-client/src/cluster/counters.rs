//! Counters of a cluster client.

/// Counters of a cluster client since it was created. They count only what is out of the ordinary: no command that goes right changes
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterCounters {
    /// MOVED replies followed.
    pub moved: u64,
    /// ASK replies followed.
    pub ask: u64,
    /// TRYAGAIN replies waited out.
    pub try_again: u64,
    /// CLUSTERDOWN, LOADING, MASTERDOWN and READONLY replies waited out.
    pub not_ready: u64,
    /// Commands that met a lost connection, or none.
    pub lost: u64,
    /// Readings of the slot map.
    pub refreshes: u64,
    /// Readings that failed on every node.
    pub failed_refreshes: u64,
    /// Connections ended because their node was silent, and another had its slots.
    pub given_up: u64,
}
