//! Counters of a cluster client.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts up.
#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What counts only when something is out of the ordinary: no command that goes right touches it.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) moved: Counter,
    pub(super) ask: Counter,
    pub(super) try_again: Counter,
    pub(super) not_ready: Counter,
    pub(super) lost: Counter,
    pub(super) refreshes: Counter,
    pub(super) failed_refreshes: Counter,
    pub(super) given_up: Counter,
}

/// Counters of a cluster client since it was created.
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

impl Counters {
    pub(super) fn read(&self) -> ClusterCounters {
        ClusterCounters {
            moved: self.moved.read(),
            ask: self.ask.read(),
            try_again: self.try_again.read(),
            not_ready: self.not_ready.read(),
            lost: self.lost.read(),
            refreshes: self.refreshes.read(),
            failed_refreshes: self.failed_refreshes.read(),
            given_up: self.given_up.read(),
        }
    }
}
