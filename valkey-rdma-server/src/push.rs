//! Messages to a connection that are not replies to its commands.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use valkey_rdma_resp::Reply;

/// Sends messages to one connection from anywhere, and can close it. From [`Peer::pusher`](crate::Peer::pusher); clones
/// send to the same connection.
///
/// Messages and replies share one stream of bytes. A message sent before a command runs goes out before its reply, one
/// sent while it runs after it, unless the handler takes its time: then messages go out meanwhile, before the reply. A
/// RESP2 peer cannot tell them apart, so send it only what its commands lead it to expect. While replies pile up
/// ([`Config::output_high_water`](crate::Config::output_high_water)) messages wait; behind the reply that closes the
/// connection there are none.
#[derive(Clone)]
pub struct Pusher(Arc<Mutex<Mailbox>>);

/// What waits for the connection.
struct Mailbox {
    messages: VecDeque<Reply>,
    /// Bytes the messages take, roughly.
    waiting: usize,
    limit: usize,
    /// The last reply is on its way.
    refusing: bool,
    end: Option<End>,
    waker: Option<Waker>,
}

/// Why no more messages are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Somebody called [`Pusher::close`].
    Closed,
    /// The peer does not take its messages.
    TooManyMessages,
}

impl Pusher {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Mailbox {
            messages: VecDeque::new(),
            waiting: 0,
            limit: usize::MAX,
            refusing: false,
            end: None,
            waker: None,
        })))
    }

    /// Sends a message: a [`Reply::Push`] is an out-of-band message in RESP3 and an array in RESP2. `false`: the connection
    /// is over, or is closed now because its peer does not take its messages
    /// ([`Config::push_limit`](crate::Config::push_limit)).
    pub fn push(&self, message: Reply) -> bool {
        let mut mailbox = self.lock();
        if mailbox.refusing || mailbox.end.is_some() {
            return false;
        }
        let len = message.weight();
        if mailbox.waiting.saturating_add(len) > mailbox.limit {
            mailbox.stop(End::TooManyMessages);
            return false;
        }
        mailbox.waiting += len;
        mailbox.messages.push_back(message);
        mailbox.wake();
        true
    }

    /// Closes the connection at once. Replies and messages not sent yet are lost.
    pub fn close(&self) {
        self.lock().stop(End::Closed);
    }

    pub(crate) fn set_limit(&self, limit: usize) {
        self.lock().limit = limit;
    }

    /// Takes no more messages and forgets those that wait. [`close`](Self::close) still works.
    pub(crate) fn refuse(&self) {
        let mut mailbox = self.lock();
        mailbox.refusing = true;
        mailbox.forget();
    }

    /// Why the connection is to end, if it is.
    pub(crate) fn end(&self) -> Option<End> {
        self.lock().end
    }

    /// The next message, if there is one already.
    pub(crate) fn take(&self) -> Option<Reply> {
        let mut mailbox = self.lock();
        let message = mailbox.messages.pop_front()?;
        mailbox.waiting -= message.weight();
        Some(message)
    }

    /// Ready when there is a message to [`take`](Self::take) or the connection is to end.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut mailbox = self.lock();
        if !mailbox.messages.is_empty() || mailbox.end.is_some() {
            return Poll::Ready(());
        }
        if !mailbox.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            mailbox.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// As [`poll_ready`](Self::poll_ready), but only for the end: there is no room for messages.
    pub(crate) fn poll_end(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut mailbox = self.lock();
        if mailbox.end.is_some() {
            return Poll::Ready(());
        }
        mailbox.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// What the lock protects is valid after every step, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Mailbox> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mailbox {
    fn stop(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.forget();
        self.wake();
    }

    fn forget(&mut self) {
        self.messages = VecDeque::new();
        self.waiting = 0;
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl fmt::Debug for Pusher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pusher").field("waiting", &self.lock().waiting).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_beyond_the_limit_end_the_connection() {
        let pusher = Pusher::new();
        pusher.set_limit(1000);
        assert!(pusher.push(Reply::bulk(vec![b'x'; 500])));
        assert!(!pusher.push(Reply::bulk(vec![b'x'; 500])));
        assert_eq!(pusher.end(), Some(End::TooManyMessages));
        assert_eq!(pusher.take(), None);
        assert!(!pusher.push(Reply::OK));
    }

    #[test]
    fn taking_makes_room() {
        let pusher = Pusher::new();
        pusher.set_limit(1000);
        for _ in 0..100 {
            assert!(pusher.push(Reply::bulk(vec![b'x'; 500])));
            assert!(pusher.take().is_some());
        }
    }
}
