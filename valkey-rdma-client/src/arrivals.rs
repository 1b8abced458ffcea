//! [`Arrivals`]: replies to a pipeline on their way from the driver to its caller, several at a time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::request::Reply;

/// Replies that have come and were not taken yet. One end brings them, the other takes them; that one of both is gone
/// the other learns elsewhere.
pub(crate) struct Arrivals {
    replies: Mutex<Vec<Reply>>,
    /// Told when there is a first one.
    some: Notify,
}

/// Replies that there is room for from the start: more than come together as a rule.
const ROOM: usize = 64;

impl Arrivals {
    /// For so many replies in all.
    pub(crate) fn of(count: usize) -> Self {
        Self { replies: Mutex::new(Vec::with_capacity(count.min(ROOM))), some: Notify::new() }
    }

    pub(crate) fn bring(self: &Arc<Self>, reply: Reply) {
        // Nobody to take it.
        if Arc::strong_count(self) == 1 {
            return;
        }
        let mut replies = self.lock();
        replies.push(reply);
        if replies.len() == 1 {
            self.some.notify_one();
        }
    }

    /// Takes all that have come, against an empty vector whose memory will be used for the next.
    pub(crate) fn take(&self, replies: &mut Vec<Reply>) {
        debug_assert!(replies.is_empty(), "these would be brought once more");
        std::mem::swap(&mut *self.lock(), replies);
    }

    /// Returns once something was brought; it may have been taken since.
    ///
    /// Cancel safe.
    pub(crate) async fn some(&self) {
        self.some.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Reply>> {
        // Valid after every step, so a panic elsewhere does not spoil it.
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use valkey_rdma_resp::Value;

    #[tokio::test]
    async fn what_comes_together_is_taken_together() {
        let taken = Arc::new(Arrivals::of(4));
        let brought = taken.clone();
        for number in 0..3 {
            brought.bring(Ok(Value::Int(number)));
        }
        let mut replies = Vec::new();
        taken.some().await;
        taken.take(&mut replies);
        assert_eq!(replies, [Ok(Value::Int(0)), Ok(Value::Int(1)), Ok(Value::Int(2))]);
        replies.clear();
        brought.bring(Ok(Value::Nil));
        taken.some().await;
        taken.take(&mut replies);
        assert_eq!(replies, [Ok(Value::Nil)]);
    }

    #[test]
    fn nothing_is_kept_for_who_is_gone() {
        let brought = Arc::new(Arrivals::of(1));
        brought.bring(Ok(Value::Nil));
        let mut replies = Vec::new();
        brought.take(&mut replies);
        assert!(replies.is_empty());
    }
}
