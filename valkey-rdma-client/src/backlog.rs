//! [`Backlog`]: what waits to be sent, on this connection or on the next.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::error::Error;
use crate::request::{Alarm, Message, Request};

/// Messages taken out of the queue while they cannot be sent; only so can their deadlines be watched.
const HELD: usize = 512;

/// The receiving end of a link's queue. It outlives connections.
pub(crate) struct Backlog {
    queue: mpsc::Receiver<Message>,
    /// Older than everything in `queue`.
    held: VecDeque<Message>,
}

/// Why a link without a connection stops waiting for one.
pub(crate) enum Stop {
    /// `close` was called; dropping the sender tells that it is done.
    Close(oneshot::Sender<()>),
    /// Every client is gone.
    Abandoned,
}

impl Backlog {
    pub(crate) fn new(queue: mpsc::Receiver<Message>) -> Self {
        Self { queue, held: VecDeque::new() }
    }

    /// The next message. None once every client is gone.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        match self.held.pop_front() {
            Some(message) => Poll::Ready(Some(message)),
            None => self.queue.poll_recv(cx),
        }
    }

    /// Takes messages out of the queue although none can be sent, so that `alarm` knows their deadlines.
    pub(crate) fn hold(&mut self, cx: &mut Context<'_>, alarm: &mut Alarm) {
        while self.held.len() < HELD {
            let Poll::Ready(Some(message)) = self.queue.poll_recv(cx) else { return };
            if let Message::Request(request) = &message
                && let Some(due) = request.due()
            {
                alarm.note(due);
            }
            self.held.push_back(message);
        }
    }

    /// Puts requests in front of all others, in the order given.
    pub(crate) fn put_back(&mut self, requests: impl DoubleEndedIterator<Item = Request>) {
        for request in requests.rev() {
            self.held.push_front(Message::Request(request));
        }
    }

    /// Hands the held requests that have waited too long to `tell`, and notes when the next will have.
    pub(crate) fn expire(&mut self, now: Instant, alarm: &mut Alarm, mut tell: impl FnMut(Request)) {
        for _ in 0..self.held.len() {
            let Some(message) = self.held.pop_front() else { return };
            if let Message::Request(request) = message {
                match request.due() {
                    Some(due) if due <= now => {
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
        self.queue.close();
    }

    /// Turns every waiting message away and lets no new one in.
    pub(crate) fn close(&mut self, error: impl Fn(&Request) -> Error) {
        self.queue.close();
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
