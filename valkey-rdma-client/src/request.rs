//! [`Request`]: what a caller hands to a link, and who waits for its replies.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use valkey_rdma_resp::{ServerError, Value};

use crate::arrivals::Arrivals;
use crate::command::Command;
use crate::error::Error;
use crate::pieces::Joined;

/// A reply: a value, or the server's refusal.
pub(crate) type Reply = Result<Value, ServerError>;

/// What clients ask of a link.
pub(crate) enum Message {
    Request(Request),
    /// Finish what is under way, then end. The sender is dropped when that is done.
    Close(oneshot::Sender<()>),
}

/// Commands that leave together, and what became of them so far.
pub(crate) struct Request {
    /// Kept until the replies are here: what was not sent, or may be repeated, is sent again on the next connection.
    pub(crate) commands: Commands,
    pub(crate) waiter: Waiter,
    pub(crate) deadline: Option<Deadline>,
    /// Until when it waits for a connection, while there is none.
    pub(crate) give_up: Option<Instant>,
    /// Whether it has one of the places in the queue.
    pub(crate) has_place: bool,
    /// How often it was handed to a connection.
    pub(crate) sends: u32,
    /// Whether an earlier connection took it to its end.
    pub(crate) may_have_run: bool,
}

impl Request {
    pub(crate) fn new(commands: Commands, waiter: Waiter, limit: Option<Duration>) -> Self {
        let deadline = limit.and_then(Deadline::after);
        Self { commands, waiter, deadline, give_up: None, has_place: false, sends: 0, may_have_run: false }
    }

    /// Whether somebody still wants the replies.
    pub(crate) fn is_wanted(&self) -> bool {
        match &self.waiter {
            Waiter::One(sender) => !sender.is_closed(),
            Waiter::Many(sender, _) => !sender.is_closed(),
            Waiter::Gone => false,
        }
    }

    /// The moment after which it must not wait any more to be sent.
    pub(crate) fn due(&self) -> Option<Instant> {
        match (self.deadline, self.give_up) {
            (Some(deadline), Some(give_up)) => Some(deadline.at.min(give_up)),
            (Some(deadline), None) => Some(deadline.at),
            (None, give_up) => give_up,
        }
    }

    /// Whether running it a second time does no harm.
    pub(crate) fn is_idempotent(&self) -> bool {
        match &self.commands {
            Commands::One(command) => command.is_idempotent(),
            Commands::Many(joined) => joined.is_idempotent(),
        }
    }

    /// Ends the wait without a reply. A caller that is gone does not mind.
    pub(crate) fn fail(self, error: Error) {
        self.waiter.fail(error);
    }
}

/// One command or a pipeline of them.
pub(crate) enum Commands {
    One(Command),
    Many(Joined),
}

impl Commands {
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(joined) => joined.count(),
        }
    }
}

/// Who waits for the replies of a request. Whether it still does changes nothing about the order.
pub(crate) enum Waiter {
    /// One command.
    One(oneshot::Sender<Result<Reply, Error>>),
    /// A pipeline, with the replies so far.
    Many(oneshot::Sender<Result<Vec<Reply>, Error>>, Replies),
    /// Nobody: it was told of a timeout, or never wanted to know.
    Gone,
}

/// The replies to a pipeline before the last one is here.
pub(crate) enum Replies {
    /// For all of them together.
    Kept(Vec<Reply>),
    /// Handed on as they come; how many have been.
    HandedOn(Arc<Arrivals>, usize),
}

impl Replies {
    pub(crate) fn push(&mut self, reply: Reply) {
        match self {
            Self::Kept(replies) => replies.push(reply),
            Self::HandedOn(arrivals, count) => {
                *count += 1;
                arrivals.bring(reply);
            }
        }
    }

    /// All that were kept.
    pub(crate) fn into_kept(self) -> Vec<Reply> {
        match self {
            Self::Kept(replies) => replies,
            Self::HandedOn(..) => Vec::new(),
        }
    }
}

impl Waiter {
    /// Forgets the replies so far, as the commands will be sent again. `false`: the caller has some of them already.
    pub(crate) fn restart(&mut self) -> bool {
        match self {
            Self::Many(_, Replies::Kept(replies)) => replies.clear(),
            Self::Many(_, Replies::HandedOn(_, count)) => return *count == 0,
            Self::One(_) | Self::Gone => {}
        }
        true
    }

    /// Ready once the caller has dropped its future.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::One(sender) => sender.poll_closed(cx),
            Self::Many(sender, _) => sender.poll_closed(cx),
            Self::Gone => Poll::Ready(()),
        }
    }

    pub(crate) fn fail(self, error: Error) {
        match self {
            Self::One(sender) => drop(sender.send(Err(error))),
            Self::Many(sender, _) => drop(sender.send(Err(error))),
            Self::Gone => {}
        }
    }
}

/// When a caller stops waiting, and how long it was willing to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) limit: Duration,
}

impl Deadline {
    /// None if the limit lies beyond what clocks count.
    pub(crate) fn after(limit: Duration) -> Option<Self> {
        Some(Self { at: Instant::now().checked_add(limit)?, limit })
    }
}

/// Wakes a task at the earliest of many moments, with one timer.
#[derive(Default)]
pub(crate) struct Alarm {
    at: Option<Instant>,
    sleep: Option<std::pin::Pin<Box<tokio::time::Sleep>>>,
}

impl Alarm {
    /// Makes sure that it goes off at this moment, or before.
    pub(crate) fn note(&mut self, at: Instant) {
        if self.goes_off_by(at) {
            return;
        }
        self.at = Some(at);
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(at))),
        }
    }

    /// Whether it is sure to go off at this moment, or before.
    pub(crate) fn goes_off_by(&self, at: Instant) -> bool {
        self.at.is_some_and(|earlier| earlier <= at)
    }

    /// Ready when it goes off; it is off then until the next note.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.sleep {
            Some(sleep) if self.at.is_some() => {
                std::task::ready!(sleep.as_mut().poll(cx));
                self.at = None;
                Poll::Ready(())
            }
            _ => Poll::Pending,
        }
    }
}
