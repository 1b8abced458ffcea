//! [`Monitor`]: what a server has done and [`Refused`] since its start, also while the server itself is in use elsewhere.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use valkey_rdma_transport::sync::{Mutex, lock};

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

/// Connections that a server refused or closed since its start, by cause. From
/// [`Server::refused`](crate::Server::refused) or [`Monitor::refused`](crate::Monitor::refused).
///
/// The first of each cause is logged as a warning, the others at debug level, so that a misbehaving peer does not fill the
/// log. Idle clients, RESP errors and TLS errors are routine: all of them are logged at debug level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// Connections above [`Limits::max_connections`](crate::Limits::max_connections).
    pub too_many_connections: u64,
    /// Peers that broke RESP.
    pub broken_commands: u64,
    /// Peers that sent the first words of an HTTP request, `POST` or `Host:`, as a command. A web page can make a browser do that.
    pub http_requests: u64,
    /// Peers that broke the RDMA protocol.
    pub broken_transport: u64,
    /// Peers of an encrypted listener that made no TLS connection within 10 s, had no certificate that was required, or broke TLS later. All
    /// are logged at debug level.
    pub broken_tls: u64,
    /// Connections that exceeded [`Limits::input_limit`](crate::Limits::input_limit).
    pub too_much_input: u64,
    /// Connections that exceeded [`Limits::push_limit`](crate::Limits::push_limit).
    pub too_many_messages: u64,
    /// Connections that exceeded [`Limits::idle_timeout`](crate::Limits::idle_timeout).
    pub idle: u64,
    /// Connections that ended because the [`Handler`](crate::Handler) panicked. The first is logged as an error, with its command.
    pub panics: u64,
}

/// A field of [`Refused`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    TooManyConnections,
    BrokenCommands,
    HttpRequests,
    BrokenTransport,
    BrokenTls,
    TooMuchInput,
    TooManyMessages,
    Idle,
    Panics,
}

/// The counters behind [`Refused`].
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: [AtomicU64; 9],
    /// When the last shortage was logged.
    shortage: Mutex<Option<Instant>>,
}

impl Refusals {
    /// Counts one. `true` if it is the first of its cause.
    pub(crate) fn count(&self, cause: Cause) -> bool {
        self.counts[cause as usize].fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Whether to log that the server cannot accept: while that lasts, it fails ten times a second.
    pub(crate) fn shortage_is_news(&self, now: Instant) -> bool {
        // One value, so a panic elsewhere does no harm.
        let mut last = lock(&self.shortage);
        let is_news = last.is_none_or(|last| now.saturating_duration_since(last) >= SHORTAGES_APART);
        if is_news {
            *last = Some(now);
        }
        is_news
    }

    pub(crate) fn snapshot(&self) -> Refused {
        let count = |cause: Cause| self.counts[cause as usize].load(Ordering::Relaxed);
        Refused {
            too_many_connections: count(Cause::TooManyConnections),
            broken_commands: count(Cause::BrokenCommands),
            http_requests: count(Cause::HttpRequests),
            broken_transport: count(Cause::BrokenTransport),
            broken_tls: count(Cause::BrokenTls),
            too_much_input: count(Cause::TooMuchInput),
            too_many_messages: count(Cause::TooManyMessages),
            idle: count(Cause::Idle),
            panics: count(Cause::Panics),
        }
    }
}

/// Between two lines about a shortage.
const SHORTAGES_APART: Duration = Duration::from_secs(60);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManyConnections => "too many connections",
            Self::BrokenCommands => "RESP protocol errors",
            Self::HttpRequests => "HTTP requests",
            Self::BrokenTransport => "RDMA protocol errors",
            Self::BrokenTls => "TLS errors",
            Self::TooMuchInput => "input limit exceeded",
            Self::TooManyMessages => "push limit exceeded",
            Self::Idle => "idle",
            Self::Panics => "panics of the handler",
        })
    }
}
