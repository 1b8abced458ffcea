//! [`Inbox`]: replies on their way from a shared connection to one local client.
//!
//! # The promise
//! | step | by | call |
//! |---|---|---|
//! | commands are queued: the client is owed this number of replies | `Shared::submit`, or `Lane::submit` in front of a cluster | [`expect`](Inbox::expect) |
//! | replies arrive, or errors in their place | the connection's driver, or the lane | [`put`](Inbox::put), with the number of replies that end there |
//! | no reply will come | the same, after a loss | [`end`](Inbox::end): the client is closed |
//! | the client's task takes replies, and sees how many are owed | the session | [`poll_take`](Inbox::poll_take) |
//!
//! So each `expect(n)` is followed by `put`s that complete `n` replies in all, or by `end`. If none is owed and none waits, nothing of
//! the client is on its way: it may move to another connection, and the gateway may answer in its turn.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::{Buf, Bytes};
use valkey_rdma_resp::Output;
use valkey_rdma_transport::sync::{keep_waker, lock};

/// Replies for one client. The shared connection puts them in, the client's task takes them out.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    /// Bytes that wait in all inboxes.
    total: Arc<AtomicUsize>,
    /// See [`of_gateway`](Self::of_gateway).
    is_of_gateway: bool,
}

#[derive(Debug, Default)]
struct State {
    replies: Output,
    /// Bytes that the client's task has taken last and may still be writing.
    taken: usize,
    /// Commands whose replies have not arrived.
    outstanding: u32,
    client: Option<Waker>,
    /// The connection that waits until replies are taken.
    connection: Option<Waker>,
    end: Option<End>,
    /// The client has closed its side.
    has_left: bool,
    /// The gateway stops: the client ends when nothing is in flight.
    stop: bool,
    /// See [`Found::pinned`].
    pins: usize,
    pins_refused: bool,
    /// It was pinned since the client left its last private connection.
    was_pinned: bool,
    /// When the first of `replies` arrived.
    since: Option<Instant>,
}

/// Why the gateway closes a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// CLIENT KILL.
    Killed,
    /// It left too many replies unread.
    TooSlow,
    /// The server does not answer its commands: their connection was lost, or there was none in time.
    Lost,
    /// The client has gone: its replies are dropped.
    Gone,
    /// The gateway stops, and nothing is in flight.
    Stopped,
}

/// What a client finds in its inbox.
pub(crate) struct Found {
    pub(crate) outstanding: u32,
    /// Replies wait that were not taken yet.
    pub(crate) more: bool,
    pub(crate) stop: bool,
    /// Other clients redirect their invalidations to this one: it needs a private connection.
    pub(crate) pinned: bool,
    pub(crate) end: Option<End>,
    pub(crate) since: Option<Instant>,
}

impl State {
    fn is_pinned(&self) -> bool {
        self.pins > 0 && !self.pins_refused
    }

    fn waiting(&self) -> usize {
        self.replies.remaining() + self.taken
    }
}

impl Inbox {
    /// An empty inbox that counts its bytes in `total` too.
    pub(crate) fn new(total: Arc<AtomicUsize>) -> Self {
        Self { total, ..Self::default() }
    }

    /// For a command of the gateway itself, which counts as no command of a client.
    pub(crate) fn of_gateway() -> Self {
        Self { is_of_gateway: true, ..Self::default() }
    }

    pub(crate) fn is_of_gateway(&self) -> bool {
        self.is_of_gateway
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Changes the state, and wakes the client's task to see it.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        let client = state.client.take();
        drop(state);
        client.into_iter().for_each(Waker::wake);
        result
    }

    /// Bytes that wait in all inboxes.
    pub(crate) fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Counts commands that will be answered.
    pub(crate) fn expect(&self, replies: u32) {
        self.state().outstanding += replies;
    }

    /// Puts bytes of replies in; `complete` replies end with them. Returns how many bytes wait now.
    pub(crate) fn put(&self, bytes: &[u8], complete: u32, now: Instant) -> usize {
        self.put_with(complete, now, |replies| replies.put(bytes))
    }

    /// Puts bytes in as [`put`](Self::put) does, without a copy.
    pub(crate) fn put_shared(&self, bytes: &Bytes, complete: u32, now: Instant) -> usize {
        self.put_with(complete, now, |replies| replies.put_shared(bytes))
    }

    /// Puts in what the function encodes there, as [`put`](Self::put) does.
    pub(crate) fn put_with(&self, complete: u32, now: Instant, put: impl FnOnce(&mut Output)) -> usize {
        self.change(|state| {
            state.outstanding = state.outstanding.saturating_sub(complete);
            if state.end.is_none() {
                let before = state.replies.remaining();
                put(&mut state.replies);
                self.total.fetch_add(state.replies.remaining() - before, Ordering::Relaxed);
                state.since.get_or_insert(now);
            }
            state.waiting()
        })
    }

    /// Ends the client, unless it has ended for another reason.
    pub(crate) fn end(&self, why: End) {
        let connection = self.change(|state| {
            state.end.get_or_insert(why);
            if why == End::Gone {
                self.total.fetch_sub(state.waiting(), Ordering::Relaxed);
                (state.replies, state.taken) = (Output::default(), 0);
            }
            state.connection.take()
        });
        connection.into_iter().for_each(Waker::wake);
    }

    /// Ends the client as one that has gone, if no reply waits for it and it has not ended. Returns whether it does so.
    pub(crate) fn end_if_unanswered(&self) -> bool {
        self.change(|state| {
            let ends = state.end.is_none() && state.waiting() == 0;
            state.end = state.end.or(ends.then_some(End::Gone));
            ends
        })
    }

    /// Notes that the client has closed its side: it sends no more, and may have gone.
    pub(crate) fn leave(&self) {
        self.state().has_left = true;
    }

    pub(crate) fn has_left(&self) -> bool {
        self.state().has_left
    }

    /// Whether it ended because the server was lost. Replies that came before are still for the client.
    pub(crate) fn is_lost(&self) -> bool {
        self.state().end == Some(End::Lost)
    }

    /// Whether it ended because another client needed its place.
    pub(crate) fn has_given_way(&self) -> bool {
        self.state().end == Some(End::Gone)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state().end.is_some()
    }

    /// Asks the client's task to end as soon as nothing is in flight.
    pub(crate) fn stop(&self) {
        self.change(|state| state.stop = true);
    }

    /// Asks the client's task to keep a private connection until [`unpin`](Self::unpin) was called as often.
    pub(crate) fn pin(&self) {
        self.change(|state| {
            state.pins += 1;
            (state.pins_refused, state.was_pinned) = (false, true);
        });
    }

    /// Ends one [`pin`](Self::pin).
    pub(crate) fn unpin(&self) {
        self.change(|state| state.pins = state.pins.saturating_sub(1));
    }

    /// The client cannot have a private connection: forgets the pins there are.
    pub(crate) fn refuse_pins(&self) {
        self.state().pins_refused = true;
    }

    pub(crate) fn refuses_pins(&self) -> bool {
        self.state().pins_refused
    }

    /// Whether it was pinned since the last call.
    pub(crate) fn take_was_pinned(&self) -> bool {
        std::mem::take(&mut self.state().was_pinned)
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.state().is_pinned()
    }

    /// Takes all replies if `replies` is empty, and has the client's task woken for the next.
    pub(crate) fn poll_take(&self, cx: &Context<'_>, replies: &mut Output) -> Found {
        let mut state = self.state();
        let mut since = None;
        if !replies.has_remaining() {
            self.total.fetch_sub(state.taken, Ordering::Relaxed);
            std::mem::swap(replies, &mut state.replies);
            state.taken = replies.remaining();
            since = state.since.take();
            if let Some(connection) = state.connection.take() {
                connection.wake();
            }
        }
        keep_waker(&mut state.client, cx);
        Found {
            outstanding: state.outstanding,
            more: state.replies.has_remaining(),
            stop: state.stop,
            pinned: state.is_pinned(),
            end: state.end,
            since,
        }
    }

    /// The reply to a single command. `None` if the client has ended.
    pub(crate) async fn whole_reply(&self) -> Option<Bytes> {
        let mut reply = Vec::new();
        poll_fn(|cx| {
            loop {
                let mut part = Output::default();
                let found = self.poll_take(cx, &mut part);
                self.wrote(part.remaining());
                reply.extend_from_slice(&part.copy_to_bytes(part.remaining()));
                if found.end.is_some() {
                    return Poll::Ready(None);
                }
                if found.outstanding == 0 && !found.more {
                    return Poll::Ready(Some(Bytes::from(std::mem::take(&mut reply))));
                }
                if !found.more {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Counts bytes of what was taken last as written.
    pub(crate) fn wrote(&self, len: usize) {
        let mut state = self.state();
        let len = len.min(state.taken);
        state.taken -= len;
        self.total.fetch_sub(len, Ordering::Relaxed);
        let connection = state.connection.take();
        drop(state);
        connection.into_iter().for_each(Waker::wake);
    }

    /// Bytes that wait, with those that are taken and not written.
    pub(crate) fn unread(&self) -> usize {
        self.state().waiting()
    }

    /// Bytes that wait. Has the connection's task woken when they are taken. 0 once the client has ended.
    pub(crate) fn poll_waiting(&self, cx: &Context<'_>) -> usize {
        let mut state = self.state();
        if state.end.is_some() {
            return 0;
        }
        keep_waker(&mut state.connection, cx);
        state.waiting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_counted_and_taken_together() {
        let inbox = Inbox::default();
        let cx = Context::from_waker(Waker::noop());
        inbox.expect(3);
        assert_eq!(inbox.put(b"+OK\r\n", 1, Instant::now()), 5);
        assert_eq!(inbox.put_shared(&Bytes::from_static(b":1\r\n"), 1, Instant::now()), 9);
        let mut replies = Output::default();
        let found = inbox.poll_take(&cx, &mut replies);
        assert_eq!((found.outstanding, replies.copy_to_bytes(9)), (1, "+OK\r\n:1\r\n".into()));
        assert!(found.since.is_some());
        assert_eq!(inbox.total(), 9, "taken, and perhaps not yet written");
        inbox.wrote(4);
        assert_eq!(inbox.total(), 5);
        inbox.wrote(9);
        assert_eq!(inbox.total(), 0);
    }

    #[test]
    fn a_client_that_has_gone_keeps_nothing() {
        let inbox = Inbox::default();
        inbox.expect(2);
        inbox.end(End::Gone);
        inbox.end(End::Killed);
        assert_eq!(inbox.put(b"+OK\r\n", 1, Instant::now()), 0);
        let found = inbox.poll_take(&Context::from_waker(Waker::noop()), &mut Output::default());
        assert_eq!((found.outstanding, found.end, inbox.total()), (1, Some(End::Gone), 0));
    }
}
