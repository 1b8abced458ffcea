//! The end of a shared connection without clients, when it is old enough or another connection needs its place.

use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use valkey_rdma_transport::sync::lock;

use super::{IDLE, Shared};
use crate::upstream::pool::GivesWay;

impl Shared {
    /// Closes the queue if there are no clients and no commands. Clients attach under the same lock.
    pub(super) fn close_unused(&self) -> bool {
        let mut queue = self.queue();
        self.users() == 0 && queue.close()
    }

    /// Does the same if the last client left at least `limit` ago, or [`IDLE`] if none will come.
    pub(super) fn close_idle(&self, limit: Duration) -> bool {
        let limit = if self.is_forgotten.load(Ordering::Relaxed) { limit.min(IDLE) } else { limit };
        self.users() == 0 && lock(&self.unused_since).elapsed() >= limit && self.close_unused()
    }

    /// Wakes the task, which then sees that the queue is closed.
    fn wake(&self) {
        let task = self.queue().take_task();
        task.into_iter().for_each(Waker::wake);
    }
}

impl GivesWay for Shared {
    fn unused_since(&self) -> Option<Instant> {
        let is_unused = self.users() == 0 && self.connection().is_some() && self.in_flight() == 0;
        is_unused.then(|| *lock(&self.unused_since))
    }

    fn give_way(&self) -> Option<CancellationToken> {
        self.close_unused().then(|| {
            self.wake();
            self.ended.clone()
        })
    }
}
