//! [`Backlog`]: what waits to be sent, on this connection or on the next.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use crate::error::Error;
use crate::request::{Alarm, Message, Request};

/// Requests that may wait at a time. Beyond it, callers wait before handing theirs over. Those that a lost connection
/// gave back wait beside them.
pub(crate) const ROOM: usize = 1024;

/// The receiving end of a link's queue. It outlives connections.
///
/// The queue itself has no bound, `room` has: so all that wait can be taken out of it, and their deadlines watched.
pub(crate) struct Backlog {
    queue: mpsc::UnboundedReceiver<Message>,
    /// Older than everything in `queue`.
    held: VecDeque<Message>,
    room: Arc<Semaphore>,
    /// Places of requests that were taken out, not given back to `room` yet.
    freed: usize,
}

/// Why a link without a connection stops waiting for one.
pub(crate) enum Stop {
    /// `close` was called; dropping the sender tells that it is done.
    Close(oneshot::Sender<()>),
    /// Every client is gone.
    Abandoned,
}

impl Backlog {
    /// Requests that come through the queue must have taken a place of `room`.
    pub(crate) fn new(queue: mpsc::UnboundedReceiver<Message>, room: Arc<Semaphore>) -> Self {
        Self { queue, held: VecDeque::new(), room, freed: 0 }
    }

    /// The next message. None once every client is gone. After the last one wanted, [`make_room`](Self::make_room).
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        let mut message = match self.held.pop_front() {
            Some(message) => Some(message),
            None => ready!(self.queue.poll_recv(cx)),
        };
        if let Some(Message::Request(request)) = &mut message {
            self.freed += usize::from(std::mem::take(&mut request.has_place));
        }
        Poll::Ready(message)
    }

    pub(crate) fn room(&self) -> Arc<Semaphore> {
        self.room.clone()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.queue.is_empty()
    }

    /// Gives the places of all requests that were taken out to others: together, which is cheaper than one by one.
    pub(crate) fn make_room(&mut self) {
        if self.freed > 0 {
            self.room.add_permits(std::mem::take(&mut self.freed));
        }
    }

    /// Takes messages out of the queue although none can be sent, so that `alarm` knows their deadlines.
    pub(crate) fn hold(&mut self, cx: &mut Context<'_>, alarm: &mut Alarm) {
        while let Poll::Ready(Some(mut message)) = self.queue.poll_recv(cx) {
            watch(&mut message, alarm);
            self.held.push_back(message);
        }
    }

    /// There is a connection again: what waits may do so up to its deadline, which `alarm` is told.
    pub(crate) fn resume(&mut self, alarm: &mut Alarm) {
        for message in &mut self.held {
            watch(message, alarm);
        }
    }

    /// Puts requests in front of all others, in the order given.
    pub(crate) fn put_back(&mut self, requests: impl DoubleEndedIterator<Item = Request>) {
        for request in requests.rev() {
            self.held.push_front(Message::Request(request));
        }
    }

    /// Hands the held requests that have waited too long to `tell`, and notes when the next will have. Forgets those
    /// that nobody wants any more.
    pub(crate) fn expire(&mut self, now: Instant, alarm: &mut Alarm, mut tell: impl FnMut(Request)) {
        for _ in 0..self.held.len() {
            let Some(message) = self.held.pop_front() else { return };
            if let Message::Request(mut request) = message {
                if !request.is_wanted() {
                    leave(&self.room, &mut request);
                    continue;
                }
                match request.due() {
                    Some(due) if due <= now => {
                        leave(&self.room, &mut request);
                        tell(request);
                        continue;
                    }
                    Some(due) => alarm.note(due),
                    None => {}
                }
                self.held.push_back(Message::Request(request));
            } else {
                self.held.push_back(message);
            }
        }
    }

    /// Looks after the waiting requests while there is no connection: none waits longer than `patience`, nor past
    /// its deadline. Returns when nobody needs a connection any more.
    ///
    /// Cancel safe: nothing is lost when the future is dropped.
    pub(crate) async fn wait_offline(
        &mut self,
        patience: Option<Duration>,
        why: impl Fn(&Request) -> Error,
    ) -> Stop {
        let mut alarm = Alarm::default();
        let closes = self.held.iter().position(|message| matches!(message, Message::Close(_)));
        if let Some(Message::Close(done)) = closes.and_then(|at| self.held.remove(at)) {
            return Stop::Close(done);
        }
        for message in &mut self.held {
            limit(message, patience, &mut alarm);
        }
        // What was cancelled since the last attempt makes room.
        self.expire(Instant::now(), &mut alarm, |request| {
            let error = why(&request);
            request.fail(error);
        });
        poll_fn(|cx| {
            loop {
                match self.queue.poll_recv(cx) {
                    Poll::Ready(Some(Message::Close(done))) => return Poll::Ready(Stop::Close(done)),
                    Poll::Ready(Some(mut message)) => {
                        limit(&mut message, patience, &mut alarm);
                        self.held.push_back(message);
                    }
                    Poll::Ready(None) => return Poll::Ready(Stop::Abandoned),
                    Poll::Pending => break,
                }
            }
            while alarm.poll(cx).is_ready() {
                self.expire(Instant::now(), &mut alarm, |request| {
                    let error = why(&request);
                    request.fail(error);
                });
            }
            Poll::Pending
        })
        .await
    }

    /// Lets no new message in; those that wait stay.
    pub(crate) fn refuse(&mut self) {
        self.room.close();
        self.queue.close();
    }

    /// Turns every waiting message away and lets no new one in.
    pub(crate) fn close(&mut self, error: impl Fn(&Request) -> Error) {
        self.refuse();
        let held = std::mem::take(&mut self.held);
        for message in held.into_iter().chain(std::iter::from_fn(|| self.queue.try_recv().ok())) {
            match message {
                Message::Request(request) => {
                    let error = error(&request);
                    request.fail(error);
                }
                Message::Close(done) => drop(done),
            }
        }
    }
}

/// A request that leaves the backlog gives its place to another.
fn leave(room: &Semaphore, request: &mut Request) {
    if std::mem::take(&mut request.has_place) {
        room.add_permits(1);
    }
}

/// Notes the deadline of a request for which there is a connection.
fn watch(message: &mut Message, alarm: &mut Alarm) {
    let Message::Request(request) = message else { return };
    request.give_up = None;
    if let Some(due) = request.due() {
        alarm.note(due);
    }
}

/// Gives a request without a connection a moment to give up, once.
fn limit(message: &mut Message, patience: Option<Duration>, alarm: &mut Alarm) {
    let Message::Request(request) = message else { return };
    if request.give_up.is_none() {
        request.give_up = patience.and_then(|patience| Instant::now().checked_add(patience));
    }
    if let Some(due) = request.due() {
        alarm.note(due);
    }
}
