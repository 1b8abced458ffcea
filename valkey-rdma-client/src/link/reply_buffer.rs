//! [`ReplyBuffer`]: replies to a pipeline between the driver and `send_each`.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::command::Reply;
use crate::sync::lock;

/// Written by the driver, read by `send_each`. A dropped end is signalled by the oneshot channel, not here.
pub(crate) struct ReplyBuffer {
    replies: Mutex<Vec<Reply>>,
    /// Notified when the buffer is no longer empty.
    ready: Notify,
}

/// Initial capacity: more replies than arrive together as a rule.
const USUAL_BURST: usize = 64;

impl ReplyBuffer {
    /// Creates a buffer for `count` replies in all.
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self { replies: Mutex::new(Vec::with_capacity(count.min(USUAL_BURST))), ready: Notify::new() }
    }

    pub(crate) fn push(self: &Arc<Self>, reply: Reply) {
        // The caller has gone away.
        if Arc::strong_count(self) == 1 {
            return;
        }
        let mut replies = lock(&self.replies);
        replies.push(reply);
        if replies.len() == 1 {
            self.ready.notify_one();
        }
    }

    /// Takes all replies. `replies` must be empty; its memory is used for the next ones.
    pub(crate) fn take(&self, replies: &mut Vec<Reply>) {
        debug_assert!(replies.is_empty(), "these would be brought once more");
        std::mem::swap(&mut *lock(&self.replies), replies);
    }

    /// Returns once a reply was pushed; it may have been taken since.
    ///
    /// Cancel safe.
    pub(crate) async fn ready(&self) {
        self.ready.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use valkey_rdma_resp::Value;

    #[tokio::test]
    async fn what_comes_together_is_taken_together() {
        let taken = Arc::new(ReplyBuffer::with_capacity(4));
        let brought = taken.clone();
        for number in 0..3 {
            brought.push(Ok(Value::Int(number)));
        }
        let mut replies = Vec::new();
        taken.ready().await;
        taken.take(&mut replies);
        assert_eq!(replies, [Ok(Value::Int(0)), Ok(Value::Int(1)), Ok(Value::Int(2))]);
        replies.clear();
        brought.push(Ok(Value::Nil));
        taken.ready().await;
        taken.take(&mut replies);
        assert_eq!(replies, [Ok(Value::Nil)]);
    }

    #[test]
    fn nothing_is_kept_for_who_is_gone() {
        let brought = Arc::new(ReplyBuffer::with_capacity(1));
        brought.push(Ok(Value::Nil));
        let mut replies = Vec::new();
        brought.take(&mut replies);
        assert!(replies.is_empty());
    }
}
