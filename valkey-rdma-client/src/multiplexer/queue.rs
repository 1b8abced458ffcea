//! [`RequestQueue`]: requests that wait to be sent, on this connection or on the next.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use super::deadline::DeadlineTimer;
use super::request::{Message, Request};
use crate::error::Error;

/// Capacity of the request queue. When it is full, `send` waits. Requests requeued after a lost connection do not
/// count.
pub(crate) const QUEUE_CAPACITY: usize = 1024;

/// The receiving end of a multiplexer's queue. It outlives connections.
///
/// The channel is unbounded and `room` bounds it. So all waiting requests can be pulled out of the channel, and their
/// deadlines watched.
pub(crate) struct RequestQueue {
    incoming: mpsc::UnboundedReceiver<Message>,
    /// Pulled out of `incoming`, and older than everything in it.
    pulled: VecDeque<Message>,
    room: Arc<Semaphore>,
    /// Permits of requests that were taken out, not yet returned to `room`.
    freed: usize,
}

/// Why a multiplexer without a connection stops waiting for one.
pub(crate) enum Stop {
    /// `close` was called; dropping the sender completes it.
    Close(oneshot::Sender<()>),
    /// Every client was dropped.
    Abandoned,
}

impl RequestQueue {
    /// Every request in `incoming` must hold a permit of `room`.
    pub(crate) fn new(incoming: mpsc::UnboundedReceiver<Message>, room: Arc<Semaphore>) -> Self {
        Self { incoming, pulled: VecDeque::new(), room, freed: 0 }
    }

    /// The next message. `None` once every client was dropped. Call [`release_permits`](Self::release_permits) after
    /// the last one wanted.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        let mut message = match self.pulled.pop_front() {
            Some(message) => Some(message),
            None => ready!(self.incoming.poll_recv(cx)),
        };
        if let Some(Message::Request(request)) = &mut message {
            self.freed += usize::from(std::mem::take(&mut request.holds_permit));
        }
        Poll::Ready(message)
    }

    pub(crate) fn room(&self) -> Arc<Semaphore> {
        self.room.clone()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pulled.is_empty() && self.incoming.is_empty()
    }

    /// Returns the permits of all requests taken out: together, which is cheaper than one by one.
    pub(crate) fn release_permits(&mut self) {
        if self.freed > 0 {
            self.room.add_permits(std::mem::take(&mut self.freed));
        }
    }

    /// Pulls messages out of the channel although none can be sent, to arm `timer` with their deadlines.
    pub(crate) fn pull(&mut self, cx: &mut Context<'_>, timer: &mut DeadlineTimer) {
        while let Poll::Ready(Some(mut message)) = self.incoming.poll_recv(cx) {
            arm_deadline(&mut message, timer);
            self.pulled.push_back(message);
        }
    }

    /// A connection is available again: requests wait up to their own deadline, which `timer` is armed with.
    pub(crate) fn resume(&mut self, timer: &mut DeadlineTimer) {
        for message in &mut self.pulled {
            arm_deadline(message, timer);
        }
    }

    /// Requeues requests in front of all others, in the order given.
    pub(crate) fn put_back(&mut self, requests: impl DoubleEndedIterator<Item = Request>) {
        for request in requests.rev() {
            self.pulled.push_front(Message::Request(request));
        }
    }

    /// Passes pulled requests that have waited too long to `fail`, arms `timer` for the next, and drops those whose
    /// caller has gone away.
    pub(crate) fn expire(&mut self, now: Instant, timer: &mut DeadlineTimer, mut fail: impl FnMut(Request)) {
        for _ in 0..self.pulled.len() {
            let Some(message) = self.pulled.pop_front() else { return };
            if let Message::Request(mut request) = message {
                if !request.is_wanted() {
                    release_permit(&self.room, &mut request);
                    continue;
                }
                match request.due() {
                    Some(due) if due <= now => {
                        release_permit(&self.room, &mut request);
                        fail(request);
                        continue;
                    }
                    Some(due) => timer.arm(due),
                    None => {}
                }
                self.pulled.push_back(Message::Request(request));
            } else {
                self.pulled.push_back(message);
            }
        }
    }

    /// Watches the waiting requests while disconnected: each waits for `offline_timeout` at most, and not past its
    /// deadline. Returns when no request or client needs a connection any more.
    ///
    /// Cancel safe: dropping the future loses nothing.
    pub(crate) async fn wait_offline(
        &mut self,
        offline_timeout: Option<Duration>,
        why: impl Fn(&Request) -> Error,
    ) -> Stop {
        let mut timer = DeadlineTimer::default();
        let closes = self.pulled.iter().position(|message| matches!(message, Message::Close(_)));
        if let Some(Message::Close(done)) = closes.and_then(|at| self.pulled.remove(at)) {
            return Stop::Close(done);
        }
        for message in &mut self.pulled {
            arm_offline_deadline(message, offline_timeout, &mut timer);
        }
        // Cancelled requests make room.
        self.expire(Instant::now(), &mut timer, |request| {
            let error = why(&request);
            request.fail(error);
        });
        poll_fn(|cx| {
            loop {
                match self.incoming.poll_recv(cx) {
                    Poll::Ready(Some(Message::Close(done))) => return Poll::Ready(Stop::Close(done)),
                    Poll::Ready(Some(mut message)) => {
                        arm_offline_deadline(&mut message, offline_timeout, &mut timer);
                        self.pulled.push_back(message);
                    }
                    Poll::Ready(None) => return Poll::Ready(Stop::Abandoned),
                    Poll::Pending => break,
                }
            }
            while timer.poll(cx).is_ready() {
                self.expire(Instant::now(), &mut timer, |request| {
                    let error = why(&request);
                    request.fail(error);
                });
            }
            Poll::Pending
        })
        .await
    }

    /// Refuses new messages; those that wait stay.
    pub(crate) fn refuse(&mut self) {
        self.room.close();
        self.incoming.close();
    }

    /// Fails every waiting request and refuses new messages.
    pub(crate) fn close(&mut self, error: impl Fn(&Request) -> Error) {
        self.refuse();
        let pulled = std::mem::take(&mut self.pulled);
        for message in pulled.into_iter().chain(std::iter::from_fn(|| self.incoming.try_recv().ok())) {
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

/// Returns the permit of a request that leaves the queue.
fn release_permit(room: &Semaphore, request: &mut Request) {
    if std::mem::take(&mut request.holds_permit) {
        room.add_permits(1);
    }
}

/// Arms `timer` with the deadline of a request for which there is a connection.
fn arm_deadline(message: &mut Message, timer: &mut DeadlineTimer) {
    let Message::Request(request) = message else { return };
    request.offline_deadline = None;
    if let Some(due) = request.due() {
        timer.arm(due);
    }
}

/// Sets when a request without a connection fails, once.
fn arm_offline_deadline(message: &mut Message, offline_timeout: Option<Duration>, timer: &mut DeadlineTimer) {
    let Message::Request(request) = message else { return };
    if request.offline_deadline.is_none() {
        request.offline_deadline =
            offline_timeout.and_then(|offline_timeout| Instant::now().checked_add(offline_timeout));
    }
    if let Some(due) = request.due() {
        timer.arm(due);
    }
}
