//! [`InFlight`]: the requests that wait for replies, in the order of the wire.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

use crate::error::{Error, ServerError};
use crate::value::Value;

/// A reply: a value, or the server's refusal.
pub(crate) type Reply = Result<Value, ServerError>;

/// Who waits for the replies of a request. Whether it still does changes nothing about the order.
pub(crate) enum Waiter {
    /// One command.
    One(oneshot::Sender<Result<Reply, Error>>),
    /// A pipeline, with the replies so far.
    Many { sender: oneshot::Sender<Result<Vec<Reply>, Error>>, replies: Vec<Reply>, expected: usize },
}

impl Waiter {
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::One(sender) => sender.poll_closed(cx),
            Self::Many { sender, .. } => sender.poll_closed(cx),
        }
    }

    /// Ends the wait without a reply. A caller that is gone does not mind.
    pub(crate) fn fail(self, error: Error) {
        match self {
            Self::One(sender) => drop(sender.send(Err(error))),
            Self::Many { sender, .. } => drop(sender.send(Err(error))),
        }
    }
}

/// A request that was encoded.
struct Request {
    waiter: Waiter,
    /// Position in the stream where its first command ends: once written so far, it may run.
    runs_from: u64,
    /// Whether it is the last of its batch.
    ends_batch: bool,
}

/// First in, first answered.
#[derive(Default)]
pub(crate) struct InFlight {
    requests: VecDeque<Request>,
    /// Commands without a reply.
    commands: usize,
    /// Batches that left and are not answered in full.
    batches: usize,
}

impl InFlight {
    pub(crate) fn push(&mut self, waiter: Waiter, runs_from: u64) {
        self.commands += match &waiter {
            Waiter::One(_) => 1,
            Waiter::Many { expected, .. } => *expected,
        };
        self.requests.push_back(Request { waiter, runs_from, ends_batch: false });
    }

    /// Ends a batch after the newest request.
    pub(crate) fn end_batch(&mut self) {
        if let Some(newest) = self.requests.back_mut() {
            newest.ends_batch = true;
            self.batches += 1;
        }
    }

    pub(crate) fn commands(&self) -> usize {
        self.commands
    }

    pub(crate) fn batches(&self) -> usize {
        self.batches
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Gives a reply to the oldest request. `false` if there is none.
    pub(crate) fn answer(&mut self, reply: Reply) -> bool {
        let Some(oldest) = self.requests.front_mut() else { return false };
        self.commands -= 1;
        if let Waiter::Many { replies, expected, .. } = &mut oldest.waiter
            && replies.len() + 1 < *expected
        {
            replies.push(reply);
            return true;
        }
        if let Some(request) = self.requests.pop_front() {
            self.batches -= usize::from(request.ends_batch);
            match request.waiter {
                Waiter::One(sender) => drop(sender.send(Ok(reply))),
                Waiter::Many { sender, mut replies, .. } => {
                    replies.push(reply);
                    drop(sender.send(Ok(replies)));
                }
            }
        }
        true
    }

    /// Fails every request; `error` is told whether the request may have run, given how much was written.
    pub(crate) fn fail_all(&mut self, written: u64, error: impl Fn(bool) -> Error) {
        self.commands = 0;
        self.batches = 0;
        for request in self.requests.drain(..) {
            request.waiter.fail(error(request.runs_from <= written));
        }
    }

    /// Ready once every caller has dropped its future.
    pub(crate) fn poll_abandoned(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for request in &mut self.requests {
            ready!(request.waiter.poll_gone(cx));
        }
        Poll::Ready(())
    }
}
