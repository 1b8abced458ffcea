//! [`Request`]: commands sent together, and where their replies go. [`Deadline`]: until when their caller waits;
//! [`DeadlineTimer`]: one timer for many of them.
//!
//! Deadlines of commands on shared connections are enforced in `Multiplexer::send` (there was no time from the beginning), `SubmitQueue::take` (late when a batch is filled), `Driver::expire` (its timer has fired) and `SubmitQueue::wait_offline`
//! (no connection).

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

use super::queue::{Load, Submit};
use super::reply_slot::{Delivery, ReplyReceiver, ReplySender, channel};
use crate::command::Commands;
use crate::error::Error;

/// Commands that are sent together, and their state.
pub(crate) struct Request {
    /// Kept until the replies arrive: what was not sent, or may be repeated, is sent again on the next connection.
    pub(crate) commands: Commands,
    /// Where the replies go. A caller that has gone away does not change the order of replies.
    pub(crate) replies: ReplySender,
    pub(crate) deadline: Option<Deadline>,
    /// Deadline for waiting while disconnected.
    pub(crate) offline_deadline: Option<Instant>,
    /// Its commands and their encoded length.
    pub(crate) load: Load,
    /// How often it was given to a connection.
    pub(crate) attempts: u32,
    /// True if its first command was written completely to a connection that was then lost.
    pub(crate) may_have_run: bool,
}

impl Request {
    pub(crate) fn new(
        commands: Commands,
        delivery: Delivery,
        deadline: Option<Deadline>,
    ) -> (Self, ReplyReceiver) {
        let (replies, receiver) = channel(&commands, delivery);
        let load = Load { commands: commands.count(), bytes: commands.encoded_len() };
        let request = Self {
            commands,
            replies,
            deadline,
            offline_deadline: None,
            load,
            attempts: 0,
            may_have_run: false,
        };
        (request, receiver)
    }

    /// True if running it twice does no harm.
    pub(crate) fn may_run_twice(&self) -> bool {
        match &self.commands {
            Commands::One(command) => command.may_run_twice(),
            Commands::Many(joined) => joined.may_run_twice(),
        }
    }

    /// Fails the request. If the caller has gone away, this has no effect.
    pub(crate) fn fail(mut self, error: Error) {
        self.replies.fail(error, Some(self.commands));
    }
}

impl Submit for Request {
    fn load(&self) -> Load {
        self.load
    }

    fn offline_deadline(&mut self) -> &mut Option<Instant> {
        &mut self.offline_deadline
    }

    fn is_wanted(&self) -> bool {
        !self.replies.is_closed()
    }

    fn due(&self) -> Option<Instant> {
        match (self.deadline, self.offline_deadline) {
            (Some(deadline), Some(offline_deadline)) => Some(deadline.at.min(offline_deadline)),
            (Some(deadline), None) => Some(deadline.at),
            (None, offline_deadline) => offline_deadline,
        }
    }
}

/// When a caller stops waiting, and the limit it was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) limit: Duration,
}

impl Deadline {
    /// Returns `None` if the limit exceeds what clocks can represent.
    pub(crate) fn after(limit: Duration) -> Option<Self> {
        Some(Self { at: Instant::now().checked_add(limit)?, limit })
    }

    /// True if there was no time from the beginning.
    pub(crate) fn is_at_once(self) -> bool {
        self.limit.is_zero()
    }

    /// True if the time is up.
    pub(crate) fn has_passed(self) -> bool {
        self.is_at_once() || self.at <= Instant::now()
    }
}

/// Wakes a task at the earliest of many deadlines, with one timer.
#[derive(Default)]
pub(crate) struct DeadlineTimer {
    at: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// The task that it wakes, since it was last armed.
    wakes: Option<Waker>,
}

impl DeadlineTimer {
    /// Makes the timer fire at this moment or before.
    pub(crate) fn arm(&mut self, at: Instant) {
        if self.fires_by(at) {
            return;
        }
        self.at = Some(at);
        self.wakes = None;
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(sleep_until(at))),
        }
    }

    /// True if the timer fires at this moment or before.
    pub(crate) fn fires_by(&self, at: Instant) -> bool {
        self.at.is_some_and(|earlier| earlier <= at)
    }

    /// Polls a timer that fires `interval` from now or before, and then again.
    pub(crate) fn poll_within(&mut self, interval: Duration, cx: &mut Context<'_>) {
        loop {
            if self.at.is_none() {
                self.arm(Instant::now() + interval);
            }
            if self.poll(cx).is_pending() {
                return;
            }
        }
    }

    /// Ready when it fires; then it is disarmed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (Some(sleep), Some(_)) = (&mut self.sleep, self.at) else { return Poll::Pending };
        // Cheaper than another poll.
        if !sleep.is_elapsed() && self.wakes.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        // Not counted, so that it keeps the waker although the task may have used up its share.
        if pin!(unconstrained(sleep.as_mut())).poll(cx).is_pending() {
            self.wakes = Some(cx.waker().clone());
            return Poll::Pending;
        }
        (self.at, self.wakes) = (None, None);
        Poll::Ready(())
    }
}
