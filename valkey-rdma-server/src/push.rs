//! [`Pusher`]: messages to a connection that are not replies to its commands.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use valkey_rdma_resp::Reply;
use valkey_rdma_transport::sync::{Mutex, MutexGuard, lock};

/// Sends messages to one connection from anywhere, and can close it. From [`Peer::pusher`](crate::Peer::pusher); clones
/// send to the same connection.
///
/// Messages and replies share one stream of bytes. A message sent before a command runs goes out before its reply. A message
/// sent while it runs goes out after its reply, or before it if the command has to wait. A RESP2 peer cannot distinguish
/// messages from replies, so send it only messages that its commands lead it to expect. Messages wait while replies pile up
/// ([`Limits::output_high_water`](crate::Limits::output_high_water)); none follows the reply that closes the connection.
#[derive(Clone)]
pub struct Pusher(Arc<Shared>);

struct Shared {
    /// Whether the mailbox has anything for the connection, so that it need not be locked for every command.
    pending: AtomicBool,
    mailbox: Mutex<Mailbox>,
}

/// The messages that wait for the connection.
struct Mailbox {
    messages: VecDeque<Reply>,
    /// Approximate size of the messages, in bytes.
    waiting: usize,
    limit: usize,
    /// The last reply is being sent: no more messages.
    refusing: bool,
    end: Option<End>,
    /// The connection's task.
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
        let mailbox = Mailbox {
            messages: VecDeque::new(),
            waiting: 0,
            limit: usize::MAX,
            refusing: false,
            end: None,
            waker: None,
        };
        Self(Arc::new(Shared { pending: AtomicBool::new(false), mailbox: Mutex::new(mailbox) }))
    }

    /// Sends a message. A [`Reply::Push`] is an out-of-band message in RESP3 and an array in RESP2. `false` if the connection
    /// has ended, or is closed now because its peer does not read its messages
    /// ([`Limits::push_limit`](crate::Limits::push_limit)).
    pub fn push(&self, message: Reply) -> bool {
        let mut mailbox = self.0.lock();
        if mailbox.refusing || mailbox.end.is_some() {
            return false;
        }
        let len = message.memory_size();
        let fits = mailbox.waiting.saturating_add(len) <= mailbox.limit;
        if fits {
            mailbox.waiting += len;
            mailbox.messages.push_back(message);
        } else {
            mailbox.stop(End::TooManyMessages);
        }
        self.0.notify(&mailbox);
        fits
    }

    /// Closes the connection at once. Replies and messages not sent yet are lost.
    pub fn close(&self) {
        let mut mailbox = self.0.lock();
        mailbox.stop(End::Closed);
        self.0.notify(&mailbox);
    }
}

/// The connection's side of its [`Pusher`]s. They report from its drop on that the connection has ended.
pub(crate) struct Inbox {
    pusher: Pusher,
    /// The waker that the mailbox has.
    waker: Option<Waker>,
}

impl Inbox {
    pub(crate) fn new(pusher: Pusher, limit: usize) -> Self {
        pusher.0.lock().limit = limit;
        Self { pusher, waker: None }
    }

    /// Whether there is something to [`take`](Self::take), or a reason to [`end`](Self::end).
    pub(crate) fn is_pending(&self) -> bool {
        self.pusher.0.pending.load(Ordering::Acquire)
    }

    /// Why the connection must end, if it must.
    pub(crate) fn end(&self) -> Option<End> {
        if self.is_pending() { self.pusher.0.lock().end } else { None }
    }

    /// Takes the next message, if there is one.
    pub(crate) fn take(&self) -> Option<Reply> {
        if !self.is_pending() {
            return None;
        }
        let mut mailbox = self.pusher.0.lock();
        let message = mailbox.messages.pop_front();
        mailbox.waiting -= message.as_ref().map_or(0, Reply::memory_size);
        self.pusher.0.pending.store(mailbox.has_something(), Ordering::Release);
        message
    }

    /// Accepts no more messages and drops those that wait. [`Pusher::close`] still works.
    pub(crate) fn refuse(&self) {
        let mut mailbox = self.pusher.0.lock();
        mailbox.refusing = true;
        mailbox.forget();
    }

    /// Ready when there is a message to [`take`](Self::take) or the connection must end.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.register(cx);
        if self.is_pending() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Ready when the connection must end. For a connection without room for messages.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.register(cx);
        if self.end().is_some() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// A pusher that locks later than this wakes the task; what earlier ones have left is seen after this.
    fn register(&mut self, cx: &Context<'_>) {
        if self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            return;
        }
        self.pusher.0.lock().waker = Some(cx.waker().clone());
        self.waker = Some(cx.waker().clone());
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let mut mailbox = self.pusher.0.lock();
        mailbox.stop(End::Closed);
        // Pushers may outlive the task.
        mailbox.waker = None;
    }
}

impl Shared {
    /// The mailbox is valid after every statement, so a panic elsewhere does no harm.
    fn lock(&self) -> MutexGuard<'_, Mailbox> {
        lock(&self.mailbox)
    }

    /// Called with the lock held, after a change that the connection must see.
    fn notify(&self, mailbox: &Mailbox) {
        self.pending.store(true, Ordering::Release);
        if let Some(waker) = &mailbox.waker {
            waker.wake_by_ref();
        }
    }
}

impl Mailbox {
    fn has_something(&self) -> bool {
        !self.messages.is_empty() || self.end.is_some()
    }

    fn stop(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.forget();
    }

    fn forget(&mut self) {
        self.messages = VecDeque::new();
        self.waiting = 0;
    }
}

impl fmt::Debug for Pusher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pusher").field("waiting", &self.0.lock().waiting).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[test]
    fn messages_beyond_the_limit_end_the_connection() {
        let pusher = Pusher::new();
        let inbox = Inbox::new(pusher.clone(), 1000);
        assert!(pusher.push(Reply::bulk(vec![b'x'; 500])));
        assert!(!pusher.push(Reply::bulk(vec![b'x'; 500])));
        assert_eq!(inbox.end(), Some(End::TooManyMessages));
        assert_eq!(inbox.take(), None);
        assert!(!pusher.push(Reply::OK));
    }

    #[test]
    fn taking_makes_room() {
        let pusher = Pusher::new();
        let inbox = Inbox::new(pusher.clone(), 1000);
        for _ in 0..100 {
            assert!(pusher.push(Reply::bulk(vec![b'x'; 500])));
            assert!(inbox.take().is_some());
        }
    }

    /// Counts its wake-ups.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_task_is_woken_by_each_message_however_it_was_registered() {
        let pusher = Pusher::new();
        let mut inbox = Inbox::new(pusher.clone(), 1000);
        let tasks = [(); 2].map(|()| Arc::new(Woken::default()));
        // The same task again, then another one.
        for (task, wakes) in [(0, 1), (0, 2), (1, 1)] {
            let waker = Waker::from(tasks[task].clone());
            let mut cx = Context::from_waker(&waker);
            assert_eq!(inbox.poll_ready(&mut cx), Poll::Pending);
            assert!(pusher.push(Reply::OK));
            assert_eq!(tasks[task].0.load(Ordering::Relaxed), wakes);
            assert_eq!(inbox.poll_end(&mut cx), Poll::Pending);
            assert_eq!(inbox.poll_ready(&mut cx), Poll::Ready(()));
            assert_eq!(inbox.take(), Some(Reply::OK));
        }
        assert_eq!(tasks[0].0.load(Ordering::Relaxed), 2);
    }
}
