//! Limits what all connections of one listener take together.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::stats::ListenerStats;
use crate::sync::{Mutex, MutexGuard, lock};

/// The limits and the usage of one listener. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Limiter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: Limits,
    usage: Mutex<Usage>,
    /// Notified when a permit is released.
    freed: Notify,
}

/// The limits; `None` is unlimited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connections: Option<usize>,
    pub(crate) pinned_bytes: Option<u64>,
}

#[derive(Debug, Default)]
struct Usage {
    stats: ListenerStats,
    /// Requests refused since the last permit was issued.
    burst: u64,
}

/// Permission for one connection. Dropping it makes room for another.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    limiter: Limiter,
    pinned_bytes: u64,
}

/// Why no permit is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitExceeded {
    Connections { limit: usize },
    PinnedBytes { limit: u64, taken: u64, wanted: u64 },
}

impl Limiter {
    pub(crate) fn new(limits: Limits) -> Self {
        Self(Arc::new(Shared { limits, usage: Mutex::default(), freed: Notify::new() }))
    }

    /// Issues a permit for a connection of `peer` that will pin `pinned_bytes`, if the limits allow. Logs when the
    /// limits are reached and when there is room again: two lines for any number of requests in between.
    pub(crate) fn try_acquire(&self, peer: SocketAddr, pinned_bytes: u64) -> Option<ConnectionPermit> {
        let (full, burst) = {
            let mut taken = self.lock();
            let full = self.0.limits.exceeded_by(&taken.stats, pinned_bytes);
            let burst = taken.burst;
            match full {
                None => {
                    taken.burst = 0;
                    taken.stats.connections += 1;
                    taken.stats.pinned_bytes += pinned_bytes;
                }
                Some(reason) => {
                    taken.burst += 1;
                    match reason {
                        LimitExceeded::Connections { .. } => taken.stats.refused_connections += 1,
                        LimitExceeded::PinnedBytes { .. } => taken.stats.refused_memory += 1,
                    }
                }
            }
            (full, burst)
        };
        match full {
            None if burst > 0 => {
                tracing::info!(refused = burst, "there is room for connections again");
            }
            Some(reason) if burst == 0 => {
                tracing::warn!(%peer, %reason, "connect requests are refused");
            }
            _ => {}
        }
        full.is_none().then(|| ConnectionPermit { limiter: self.clone(), pinned_bytes })
    }

    pub(crate) fn stats(&self) -> ListenerStats {
        self.lock().stats
    }

    pub(crate) fn count_accepted(&self) {
        self.lock().stats.accepted += 1;
    }

    pub(crate) fn count_failed(&self) {
        self.lock().stats.failed += 1;
    }

    /// Waits until every permit has been released.
    pub(crate) async fn until_free(&self) {
        loop {
            let freed = self.0.freed.notified();
            if self.lock().stats.connections == 0 {
                return;
            }
            freed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        lock(&self.0.usage)
    }
}

impl Limits {
    fn exceeded_by(&self, taken: &ListenerStats, wanted: u64) -> Option<LimitExceeded> {
        match (self.connections, self.pinned_bytes) {
            (Some(limit), _) if taken.connections >= limit => Some(LimitExceeded::Connections { limit }),
            // By subtracting: the sum could wrap.
            (_, Some(limit)) if wanted > limit.saturating_sub(taken.pinned_bytes) => {
                Some(LimitExceeded::PinnedBytes { limit, taken: taken.pinned_bytes, wanted })
            }
            _ => None,
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        {
            let mut taken = self.limiter.lock();
            taken.stats.connections -= 1;
            taken.stats.pinned_bytes -= self.pinned_bytes;
        }
        self.limiter.0.freed.notify_waiters();
    }
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitExceeded::Connections { limit } => {
                write!(f, "{limit} connections are open: Config::max_connections")
            }
            LimitExceeded::PinnedBytes { limit, taken, wanted } => write!(
                f,
                "{taken} of {limit} bytes are pinned, one more connection pins {wanted}: Config::max_pinned_bytes"
            ),
        }
    }
}
