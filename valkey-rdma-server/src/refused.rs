//! What was refused, counted by cause and logged once for each.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Connections that a server turned away or ended since it was started, by cause. From
/// [`Server::refused`](crate::Server::refused).
///
/// The first of each cause is logged as a warning, the others at debug level only: a peer that misbehaves does not fill
/// the log. Idle clients and those that break RESP are daily bread, and logged at debug level from the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// There were too many connections: [`Config::max_connections`](crate::Config::max_connections).
    pub too_many_connections: u64,
    /// The peer broke RESP.
    pub broken_commands: u64,
    /// The peer broke the RDMA protocol.
    pub broken_transport: u64,
    /// More was sent than may wait to be run: [`Config::input_limit`](crate::Config::input_limit).
    pub too_much_input: u64,
    /// Messages were not taken: [`Config::push_limit`](crate::Config::push_limit).
    pub too_many_messages: u64,
    /// Nothing was sent or taken for too long: [`Config::idle_timeout`](crate::Config::idle_timeout).
    pub idle: u64,
}

/// A field of [`Refused`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    TooManyConnections,
    BrokenCommands,
    BrokenTransport,
    TooMuchInput,
    TooManyMessages,
    Idle,
}

/// The counters behind [`Refused`].
#[derive(Debug, Default)]
pub(crate) struct Refusals([AtomicU64; 6]);

impl Refusals {
    /// `true`: it is the first of its cause.
    pub(crate) fn count(&self, cause: Cause) -> bool {
        self.0[cause as usize].fetch_add(1, Ordering::Relaxed) == 0
    }

    pub(crate) fn snapshot(&self) -> Refused {
        let count = |cause: Cause| self.0[cause as usize].load(Ordering::Relaxed);
        Refused {
            too_many_connections: count(Cause::TooManyConnections),
            broken_commands: count(Cause::BrokenCommands),
            broken_transport: count(Cause::BrokenTransport),
            too_much_input: count(Cause::TooMuchInput),
            too_many_messages: count(Cause::TooManyMessages),
            idle: count(Cause::Idle),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManyConnections => "too many connections",
            Self::BrokenCommands => "broken commands",
            Self::BrokenTransport => "broken transport",
            Self::TooMuchInput => "too much input",
            Self::TooManyMessages => "messages not taken",
            Self::Idle => "idle",
        })
    }
}
