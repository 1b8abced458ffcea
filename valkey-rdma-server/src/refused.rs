//! Counts of refused and closed connections, by cause.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use valkey_rdma_transport::sync::{Mutex, lock};

/// Connections that a server refused or closed since its start, by cause. From
/// [`Server::refused`](crate::Server::refused) or [`Monitor::refused`](crate::Monitor::refused).
///
/// The first of each cause is logged as a warning, the others at debug level, so that a misbehaving peer does not fill the
/// log. Idle clients and RESP errors are routine: all of them are logged at debug level.
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
    TooMuchInput,
    TooManyMessages,
    Idle,
    Panics,
}

/// The counters behind [`Refused`].
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: [AtomicU64; 8],
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
            Self::TooMuchInput => "input limit exceeded",
            Self::TooManyMessages => "push limit exceeded",
            Self::Idle => "idle",
            Self::Panics => "panics of the handler",
        })
    }
}
