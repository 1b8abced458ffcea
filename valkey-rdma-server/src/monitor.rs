//! [`Monitor`]: what a server has done since its start, also while the server itself is in use elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ending::{Refusals, Refused};

/// Reads the counters of a [`Server`](crate::Server): from [`Server::monitor`](crate::Server::monitor). Clones share the counters. They stay
/// readable after the server has ended.
///
/// ```
/// use valkey_rdma_server::{Reply, Server, handler_fn};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let server = Server::builder(handler_fn(|_command| async { Ok(Reply::OK) }))
///     .listen("valkey://127.0.0.1:0")
///     .start()
///     .await?;
/// let monitor = server.monitor();
/// let report = async {
///     let counters = monitor.counters();
///     println!("{} connections, {} commands", counters.connections, counters.commands);
/// };
/// server.run_until(report).await;
/// # Ok::<_, valkey_rdma_server::BindError>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Default)]
pub struct Monitor(Arc<Counts>);

/// What a server has done since its start: [`Monitor::counters`]. A connection's work counts when the connection next waits for its peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Connections that are served now.
    pub connections: u64,
    /// Connections that were served, or are. Those above [`Limits::max_connections`](crate::Limits::max_connections) are in
    /// [`Refused::too_many_connections`].
    pub accepted: u64,
    /// Commands that arrived whole, also those that were answered with an error.
    pub commands: u64,
    /// Bytes received over the streams of all connections.
    pub bytes_received: u64,
    /// Bytes sent over them: replies and messages.
    pub bytes_sent: u64,
}

#[derive(Debug, Default)]
struct Counts {
    refusals: Refusals,
    accepted: AtomicU64,
    ended: AtomicU64,
    commands: AtomicU64,
    bytes_received: AtomicU64,
    bytes_sent: AtomicU64,
}

impl Monitor {
    /// The counters as of now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (ended, accepted) = (read(&self.0.ended), read(&self.0.accepted));
        Counters {
            connections: accepted.saturating_sub(ended),
            accepted,
            commands: read(&self.0.commands),
            bytes_received: read(&self.0.bytes_received),
            bytes_sent: read(&self.0.bytes_sent),
        }
    }

    /// Counts of refused and closed connections since the start, by cause.
    #[must_use]
    pub fn refused(&self) -> Refused {
        self.0.refusals.snapshot()
    }

    pub(crate) fn refusals(&self) -> &Refusals {
        &self.0.refusals
    }

    /// Counts a connection until the value is dropped.
    pub(crate) fn accepted(&self) -> Traffic {
        self.0.accepted.fetch_add(1, Ordering::Relaxed);
        Traffic { monitor: self.clone(), commands: 0, received: 0, sent: 0 }
    }
}

/// What one connection has done since it last reported. Threads share the counters, so it reports once for all that it does in one turn.
#[derive(Debug)]
pub(crate) struct Traffic {
    monitor: Monitor,
    commands: u64,
    received: u64,
    sent: u64,
}

impl Traffic {
    pub(crate) fn command(&mut self) {
        self.commands += 1;
    }

    pub(crate) fn received(&mut self, len: usize) {
        self.received += len as u64;
    }

    pub(crate) fn sent(&mut self, len: usize) {
        self.sent += len as u64;
    }

    pub(crate) fn report(&mut self) {
        let Counts { commands, bytes_received, bytes_sent, .. } = &*self.monitor.0;
        for (count, total) in [
            (&mut self.commands, commands),
            (&mut self.received, bytes_received),
            (&mut self.sent, bytes_sent),
        ] {
            if *count > 0 {
                total.fetch_add(std::mem::take(count), Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.report();
        self.monitor.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}
