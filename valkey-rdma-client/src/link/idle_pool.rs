//! [`IdlePool`]: connections that wait for their next use.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::raw::RawConnection;
use crate::stats::Purpose;
use valkey_rdma_transport::sync::lock;

/// Connections that wait for their next use. Those that are used again and again are all kept: a new one costs time, and over RDMA the
/// server memory for good. Those unused for [`UNUSED`] are closed, but for [`KEPT`].
#[derive(Default)]
pub(crate) struct IdlePool {
    idle: Arc<Mutex<Idle>>,
}

#[derive(Default)]
struct Idle {
    /// The least recently used first.
    connections: Vec<Waiting>,
    closed: bool,
    /// A task closes those that stay unused.
    is_swept: bool,
}

struct Waiting {
    connection: RawConnection,
    /// What it was made for, which decides how long its buffers are.
    purpose: Purpose,
    since: Instant,
}

impl Waiting {
    /// Whether its buffers are as long as connections of this purpose have them. Over TCP all are alike.
    fn suits(&self, purpose: Purpose) -> bool {
        self.purpose.is_small() == purpose.is_small() || self.connection.info.rx_window.is_none()
    }
}

impl IdlePool {
    /// Closes idle connections and keeps no more.
    pub(crate) fn close(&self) {
        let mut idle = lock(&self.idle);
        idle.closed = true;
        let closing = std::mem::take(&mut idle.connections);
        drop(idle);
        drop(closing);
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.idle).closed
    }

    /// An idle connection that suits this purpose, the most recently used first. It may have been closed by the server meanwhile.
    pub(crate) fn take(&self, purpose: Purpose) -> Option<RawConnection> {
        let connections = &mut lock(&self.idle).connections;
        let last = connections.iter().rposition(|waiting| waiting.suits(purpose))?;
        Some(connections.remove(last).connection)
    }

    pub(crate) fn put(&self, connection: RawConnection, purpose: Purpose) {
        let mut idle = lock(&self.idle);
        if idle.closed {
            return;
        }
        connection.set_purpose(Purpose::Idle);
        let runtime = connection.runtime.clone();
        idle.connections.push(Waiting { connection, purpose, since: Instant::now() });
        let needs_sweep = idle.connections.len() > KEPT && !std::mem::replace(&mut idle.is_swept, true);
        drop(idle);
        if needs_sweep {
            // A runtime that has ended drops it at once.
            runtime.spawn(Sweep(Arc::downgrade(&self.idle)).run());
        }
    }
}

/// Closes connections that stay unused, until few are left or the pool is dropped.
struct Sweep(Weak<Mutex<Idle>>);

impl Sweep {
    async fn run(mut self) {
        while let Some(due) = self.0.upgrade().and_then(|idle| next_due(lock(&idle))) {
            sleep_until(due).await;
        }
        // From here on there may be another one.
        self.0 = Weak::new();
    }
}

/// If its runtime ends, the next connection starts another one.
impl Drop for Sweep {
    fn drop(&mut self) {
        if let Some(idle) = self.0.upgrade() {
            lock(&idle).is_swept = false;
        }
    }
}

/// Closes those that are due. Returns when the next is due, or `None`: this sweep ends.
fn next_due(mut idle: MutexGuard<'_, Idle>) -> Option<Instant> {
    let excess = idle.connections.len().saturating_sub(KEPT);
    let now = Instant::now();
    let due = idle.connections[..excess].partition_point(|waiting| waiting.since + UNUSED <= now);
    let closing: Vec<_> = idle.connections.drain(..due).collect();
    let next = idle.connections.first().filter(|_| due < excess).map(|waiting| waiting.since + UNUSED);
    idle.is_swept = next.is_some();
    drop(idle);
    drop(closing);
    next
}

// Both are promised in the documentation of `Client`, and in docs/operations.md.

/// How many connections are kept however long they are not used. Over RDMA each pins memory at both ends.
const KEPT: usize = 2;
/// How long the others are kept.
const UNUSED: Duration = Duration::from_secs(10);
