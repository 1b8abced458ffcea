//! Connections that share completion queues.

use std::fmt;
#[cfg(feature = "verbs")]
use std::sync::Arc;

#[cfg(feature = "verbs")]
use crate::verbs::Queues;

/// Connections that share completion queues: however many of them are ready at once, one event of the device and one
/// request for the next serve them all. Clones are the same group.
///
/// Worth it where one thread drives many connections that are not busy all the time, such as those of a server: one system
/// call and one interrupt instead of one for each that is ready. It costs a turn of a task from an event to the connection
/// it is about, and so makes a connection that is alone slower. Connections that different threads drive wait for each
/// other at a lock: give each thread a group of its own.
///
/// Up to 16 connections share a queue, fewer where the device's queues are not as deep as that takes; then another one is
/// made. They end together if it fails, or if the runtime ends in which the first of them was made.
///
/// The device is not asked for an event each time one of them asks: [`DeviceCounters::events`](crate::DeviceCounters::events)
/// and [`arms`](crate::DeviceCounters::arms) count what the connection asked and was told. Kernel verbs only.
#[derive(Clone, Default)]
pub struct CompletionGroup {
    #[cfg(feature = "verbs")]
    queues: Arc<Queues>,
}

impl CompletionGroup {
    /// A group without connections.
    pub fn new() -> Self {
        Self::default()
    }

    #[cfg(feature = "verbs")]
    pub(crate) fn queues(&self) -> &Queues {
        &self.queues
    }
}

impl fmt::Debug for CompletionGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionGroup").finish_non_exhaustive()
    }
}
