//! Connections that share completion queues.

use std::fmt;
#[cfg(feature = "verbs")]
use std::sync::Arc;

#[cfg(feature = "verbs")]
use crate::verbs::Queues;

/// Connections that share completion queues: however many of them are ready at once, one event of the device and one
/// request for the next serve them all. Clones are the same group.
///
/// Useful where one thread drives many connections, such as those of a server: with 50 of them, 17 to 19 % more requests per
/// second on soft-RoCE (8 pairs of runs). Events pass through a dispatcher task. On one thread its cost is not measurable; across
/// threads it costs a wake-up and lock contention, so use one `SharedCq` per thread.
///
/// A queue has room for 64 connections as deep as its first, fewer where the device has none that deep: a connection takes as
/// many entries as it may have work requests, [`send_depth`](crate::Config::send_depth) and
/// [`receive_depth`](crate::Config::receive_depth) together. When a queue is full, another one is made; each device has its own.
/// A queue is allocated at full size: 8 MiB with the default depths and the 64 bytes that common adapters use for an entry. No
/// count of pinned bytes includes it.
///
/// If a queue fails, or the runtime that created its first connection shuts down, all its connections end. Each reports
/// [`TransportError::SharedQueue`](crate::TransportError::SharedQueue) or the error of its device.
///
/// Each connection's [`DeviceCounters::events`](crate::DeviceCounters::events) and
/// [`arms`](crate::DeviceCounters::arms) count its own share of those calls. Kernel verbs only.
#[derive(Clone, Default)]
pub struct SharedCq {
    #[cfg(feature = "verbs")]
    queues: Arc<Queues>,
}

impl SharedCq {
    /// A group without connections.
    pub fn new() -> Self {
        Self::default()
    }

    #[cfg(feature = "verbs")]
    pub(crate) fn queues(&self) -> &Queues {
        &self.queues
    }
}

impl fmt::Debug for SharedCq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCq").finish_non_exhaustive()
    }
}
