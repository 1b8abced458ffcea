//! [`SlowReader`]: whether a client reads its replies.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Sleep, sleep};

use crate::limits::Limits;

/// How much a client has taken since it has had too many replies unread.
#[derive(Default)]
pub(super) struct SlowReader {
    taken: usize,
    /// When it must have taken [`PROGRESS`]. None while it has few replies unread.
    due: Option<Pin<Box<Sleep>>>,
}

impl SlowReader {
    /// Counts bytes that the client has taken.
    pub(super) fn took(&mut self, bytes: usize) {
        self.taken += bytes;
    }

    /// Ready if the client, with this many bytes unread, must be closed.
    pub(super) fn poll_too_slow(&mut self, cx: &mut Context<'_>, unread: usize, limits: &Limits) -> Poll<()> {
        if unread <= limits.unread_bytes {
            self.due = None;
            return Poll::Pending;
        }
        loop {
            let due = self.due.get_or_insert_with(|| {
                self.taken = 0;
                Box::pin(sleep(limits.slow_reader()))
            });
            ready!(due.as_mut().poll(cx));
            if self.taken < PROGRESS {
                return Poll::Ready(());
            }
            self.due = None;
        }
    }
}

/// Bytes that a client with too many replies unread takes within the time for slow readers, at least.
const PROGRESS: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_replies_is_not_too_slow() {
        let limits = Limits::default();
        let (mut reader, mut cx) = (SlowReader::default(), Context::from_waker(std::task::Waker::noop()));
        let mut is_too_slow =
            |reader: &mut SlowReader, unread| reader.poll_too_slow(&mut cx, unread, &limits).is_ready();
        let (much, second) = (limits.unread_bytes + 1, Duration::from_secs(1));
        assert!(!is_too_slow(&mut reader, much));
        reader.took(PROGRESS);
        advance(second).await;
        assert!(!is_too_slow(&mut reader, much), "it has taken enough");
        reader.took(PROGRESS - 1);
        advance(second / 2).await;
        assert!(!is_too_slow(&mut reader, much), "it has time");
        advance(second / 2).await;
        assert!(is_too_slow(&mut reader, much));
        assert!(!is_too_slow(&mut reader, much - 1), "few are unread");
        assert!(!is_too_slow(&mut reader, much), "its time begins anew");
    }
}
