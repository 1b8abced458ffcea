//! [`SlowReader`]: whether a client reads its replies.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::config::limits::Limits;

/// What a client does while it has too many replies unread.
#[derive(Default)]
pub(super) struct SlowReader {
    taken: usize,
    /// It has sent something.
    has_sent: bool,
    /// When it must have done one of the two. None while it has few replies unread.
    due: Option<Pin<Box<Sleep>>>,
    ahead: Ahead,
}

/// Whether a client sends on before it reads.
#[derive(Default)]
enum Ahead {
    /// It has few replies unread, or has just taken some.
    #[default]
    No,
    /// It has time until then to take some.
    After(Pin<Box<Sleep>>),
    /// Until it has few unread.
    Yes,
}

impl SlowReader {
    /// Counts bytes that the client has taken.
    pub(super) fn took(&mut self, bytes: usize) {
        self.taken += bytes;
        if let Ahead::After(_) = self.ahead {
            self.ahead = Ahead::No;
        }
    }

    /// Notes that the client has sent something: it may read nothing before it has sent all of a pipeline.
    pub(super) fn sent(&mut self) {
        self.has_sent = true;
    }

    /// Ready if the client, with this many bytes unread, must be closed.
    pub(super) fn poll_too_slow(&mut self, cx: &mut Context<'_>, unread: usize, limits: &Limits) -> Poll<()> {
        if unread <= limits.unread_bytes {
            self.due = None;
            return Poll::Pending;
        }
        loop {
            let due = self.due.get_or_insert_with(|| {
                (self.taken, self.has_sent) = (0, false);
                Box::pin(sleep(limits.slow_reader()))
            });
            ready!(due.as_mut().poll(cx));
            if self.taken < PROGRESS && !self.has_sent {
                return Poll::Ready(());
            }
            self.due = None;
        }
    }

    /// Ready if more commands are taken from the client, which has this many bytes of replies to read: few, or it takes none of them.
    ///
    /// A client that reads waits for its replies, so that they need no memory. One that does not read may wait until it has sent all of its
    /// commands: nothing would end it if both waited.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>, unread: usize) -> Poll<()> {
        if unread < MUCH {
            self.ahead = Ahead::No;
            return Poll::Ready(());
        }
        if let Ahead::No = self.ahead {
            self.ahead = Ahead::After(Box::pin(sleep(PAUSE)));
        }
        if let Ahead::After(pause) = &mut self.ahead {
            ready!(pause.as_mut().poll(cx));
            self.ahead = Ahead::Yes;
        }
        Poll::Ready(())
    }

    /// Whether the client sends on, and takes none of its replies.
    pub(super) fn sends_ahead(&self) -> bool {
        matches!(self.ahead, Ahead::Yes)
    }
}

/// Bytes that a client with too many replies unread takes within the time for slow readers, at least.
const PROGRESS: usize = 1 << 20;
/// Bytes of replies that wait for a client before no more of its commands are read, as long as it reads.
pub(super) const MUCH: usize = 1 << 20;
/// A client that has taken nothing for this long may wait until it has sent all.
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
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
    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_is_not_too_slow() {
        let limits = Limits::default();
        let (mut reader, mut cx) = (SlowReader::default(), Context::from_waker(std::task::Waker::noop()));
        let (much, second) = (limits.unread_bytes + 1, Duration::from_secs(1));
        assert!(reader.poll_too_slow(&mut cx, much, &limits).is_pending());
        reader.sent();
        advance(second).await;
        assert!(reader.poll_too_slow(&mut cx, much, &limits).is_pending(), "it has sent something");
        advance(second).await;
        assert!(reader.poll_too_slow(&mut cx, much, &limits).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn commands_wait_for_a_client_that_reads_and_not_for_one_that_does_not() {
        let (mut reader, mut cx) = (SlowReader::default(), Context::from_waker(std::task::Waker::noop()));
        assert!(reader.poll_more(&mut cx, MUCH - 1).is_ready(), "few are unread");
        for _ in 0..3 {
            assert!(reader.poll_more(&mut cx, MUCH).is_pending());
            advance(PAUSE * 3 / 4).await;
            reader.took(1);
        }
        assert!(reader.poll_more(&mut cx, MUCH).is_pending() && !reader.sends_ahead());
        advance(PAUSE).await;
        assert!(reader.poll_more(&mut cx, MUCH).is_ready() && reader.sends_ahead());
        reader.took(1);
        assert!(reader.poll_more(&mut cx, MUCH).is_ready(), "until few are unread");
        assert!(reader.poll_more(&mut cx, MUCH - 1).is_ready() && !reader.sends_ahead());
        assert!(reader.poll_more(&mut cx, MUCH).is_pending());
    }
}
