//! [`AtomicCounters`]: what the multiplexer counts, read as [`Counters`].

use std::sync::atomic::{AtomicU64, Ordering};

use super::Counters;

/// Timeouts are also counted by callers. Everything else is counted under the driver's lock or by the connection task
/// while there is no driver, so it needs no atomic addition.
#[derive(Default)]
pub(crate) struct AtomicCounters {
    commands: AtomicU64,
    batches: AtomicU64,
    replies: AtomicU64,
    pushes: AtomicU64,
    reads: AtomicU64,
    in_flight: AtomicU64,
    reconnects: AtomicU64,
    retries: AtomicU64,
    timeouts: AtomicU64,
    driver_polls: AtomicU64,
    empty_driver_polls: AtomicU64,
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

    pub(crate) fn bytes_read(&self) {
        add(&self.reads, 1);
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
        self.timeouts.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a poll of the driver by the connection task. `moved`: it sent commands or received replies.
    pub(crate) fn driver_poll(&self, moved: bool) {
        add(&self.driver_polls, 1);
        add(&self.empty_driver_polls, u64::from(!moved));
    }

    pub(crate) fn read(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            commands: read(&self.commands),
            batches: read(&self.batches),
            replies: read(&self.replies),
            pushes: read(&self.pushes),
            reads: read(&self.reads),
            in_flight: read(&self.in_flight),
            reconnects: read(&self.reconnects),
            retries: read(&self.retries),
            timeouts: read(&self.timeouts),
            driver_polls: read(&self.driver_polls),
            empty_driver_polls: read(&self.empty_driver_polls),
        }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}
