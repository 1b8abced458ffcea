//! [`Pusher`]: messages to a connection that are not replies to its commands.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use valkey_rdma_resp::Reply;

/// Sends messages to one connection from anywhere, and can close it. From [`Peer::pusher`](crate::Peer::pusher); clones
/// send to the same connection.
///
/// Messages and replies share one stream of bytes. A message sent before a command runs goes out before its reply. A message
/// sent while it runs goes out after its reply, or before it if the command has to wait. A RESP2 peer cannot distinguish
/// messages from replies, so send it only messages that its commands lead it to expect. Messages wait while replies pile up
/// ([`Limits::output_high_water`](crate::Limits::output_high_water)); none follows the reply that closes the connection.
#[derive(Clone)]
pub struct Pusher(Arc<Mutex<Mailbox>>);

/// The messages that wait for the connection.
struct Mailbox {
    messages: VecDeque<Reply>,
    /// Approximate size of the messages, in bytes.
    waiting: usize,
    limit: usize,
    /// The last reply is being sent: no more messages.
    refusing: bool,
    end: Option<End>,
    waker: Option<Waker>,
}

/// Why no more messages are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// [`Pusher::close`] was called.
    Closed,
    /// The peer does not read its messages.
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

    /// Sends a message. A [`Reply::Push`] is an out-of-band message in RESP3 and an array in RESP2. `false` if the connection
    /// has ended, or is closed now because its peer does not read its messages
    /// ([`Limits::push_limit`](crate::Limits::push_limit)).
    pub fn push(&self, message: Reply) -> bool {
        let mut mailbox = self.lock();
        if mailbox.refusing || mailbox.end.is_some() {
            return false;
        }
        let len = message.memory_size();
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

    /// Accepts no more messages and drops those that wait. [`close`](Self::close) still works.
    pub(crate) fn refuse(&self) {
        let mut mailbox = self.lock();
        mailbox.refusing = true;
        mailbox.forget();
    }

    /// Why the connection must end, if it must.
    pub(crate) fn end(&self) -> Option<End> {
        self.lock().end
    }

    /// Takes the next message, if there is one.
    pub(crate) fn take(&self) -> Option<Reply> {
        let mut mailbox = self.lock();
        let message = mailbox.messages.pop_front()?;
        mailbox.waiting -= message.memory_size();
        Some(message)
    }

    /// Ready when there is a message to [`take`](Self::take) or the connection must end.
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

    /// Ready when the connection must end. For a connection without room for messages.
    pub(crate) fn poll_end(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut mailbox = self.lock();
        if mailbox.end.is_some() {
            return Poll::Ready(());
        }
        mailbox.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The mailbox is valid after every statement, so a panic elsewhere does no harm.
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
