//! Connections that share completion queues.

use std::fmt;
#[cfg(feature = "verbs")]
use std::sync::Arc;

#[cfg(feature = "verbs")]
use crate::verbs::Queues;

/// Connections that share completion queues: however many of them are ready at once, one event of the device and one
/// request for the next serve them all. Clones are the same group.
///
/// Worth it where one thread drives many connections, such as those of a server: with 50 of them, a sixth more requests per
/// second on soft-RoCE. From an event to the connection it is about, a task has a turn in between; with one thread that
/// costs nothing that could be measured. Between threads it would be a wake-up, and a lock to wait at: give each thread a
/// group of its own.
///
/// A queue has room for 64 connections as deep as its first, fewer where the device has none that deep: a connection takes as
/// many entries as it may have work requests, [`send_depth`](crate::Config::send_depth) and
/// [`receive_depth`](crate::Config::receive_depth) together. When it is full, another one is made, and likewise for another device
/// or another [vector](crate::Config::completion_vector). It has that room from the start: with the default depths and the
/// 64 bytes that common adapters use for an entry, 8 MiB, which no count of pinned bytes includes.
///
/// Those of one queue end together if it fails, or if the runtime ends in which the first of them was made. Each has
/// [`TransportError::SharedQueue`](crate::TransportError::SharedQueue) or what the device told it.
///
/// The device is not asked for an event each time one of them asks: [`DeviceCounters::events`](crate::DeviceCounters::events)
/// and [`arms`](crate::DeviceCounters::arms) count what the connection asked and was told. Kernel verbs only.
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
