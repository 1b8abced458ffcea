//! [`AtomicCounters`]: what the multiplexer counts, read as [`Counters`].

use std::sync::atomic::{AtomicU64, Ordering};

use super::Counters;

/// Sent, received and in-flight commands are counted under the driver's lock, reconnects by the connection task,
/// timeouts also by callers.
#[derive(Default)]
pub(crate) struct AtomicCounters {
    commands: AtomicU64,
    batches: AtomicU64,
    replies: AtomicU64,
    pushes: AtomicU64,
    in_flight: AtomicU64,
    reconnects: AtomicU64,
    retries: AtomicU64,
    timeouts: AtomicU64,
}

impl AtomicCounters {
    /// Counts a batch of `commands` commands.
    pub(crate) fn batch(&self, commands: usize) {
        add(&self.commands, commands as u64);
        add(&self.batches, 1);
    }

    pub(crate) fn replies(&self, count: u64) {
        add(&self.replies, count);
    }

    pub(crate) fn push(&self) {
        add(&self.pushes, 1);
    }

    pub(crate) fn in_flight(&self, commands: usize) {
        self.in_flight.store(commands as u64, Ordering::Relaxed);
    }

    pub(crate) fn reconnected(&self) {
        add(&self.reconnects, 1);
    }

    pub(crate) fn retried(&self, requests: usize) {
        add(&self.retries, requests as u64);
    }

    pub(crate) fn timed_out(&self) {
        add(&self.timeouts, 1);
    }

    pub(crate) fn read(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            commands: read(&self.commands),
            batches: read(&self.batches),
            replies: read(&self.replies),
            pushes: read(&self.pushes),
            in_flight: read(&self.in_flight),
            reconnects: read(&self.reconnects),
            retries: read(&self.retries),
            timeouts: read(&self.timeouts),
        }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
