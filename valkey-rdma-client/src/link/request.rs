//! [`Request`]: commands sent together, and where their replies go. [`Deadline`]: until when their caller waits.
//!
//! Deadlines of commands on shared connections are enforced in `Multiplexer::send` (there was no time from the beginning),
//! `SubmitQueue::take` (late when a batch is filled), `Driver::expire` (its timer has fired) and `SubmitQueue::wait_offline` (no
//! connection).

use std::time::Duration;

use tokio::time::Instant;

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
    pub(crate) fn may_run_twice(&mut self) -> bool {
        match &mut self.commands {
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

    /// Moves it by this time, which does not count. `None` as above.
    pub(crate) fn put_off(self, by: Duration) -> Option<Self> {
        Some(Self { at: self.at.checked_add(by)?, ..self })
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
