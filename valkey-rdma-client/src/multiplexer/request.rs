//! [`Request`]: what a caller hands to a multiplexer, and who waits for its replies.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::deadline::Deadline;
use super::reply_buffer::ReplyBuffer;
use crate::error::Error;
use crate::resp::{Commands, Reply};

/// What clients ask of a multiplexer.
pub(crate) enum Message {
    Request(Request),
    /// Finish what is under way, then end. The sender is dropped when that is done.
    Close(oneshot::Sender<()>),
}

/// Commands that leave together, and what became of them so far.
pub(crate) struct Request {
    /// Kept until the replies are here: what was not sent, or may be repeated, is sent again on the next connection.
    pub(crate) commands: Commands,
    pub(crate) sink: ReplySink,
    pub(crate) deadline: Option<Deadline>,
    /// Until when it waits for a connection, while there is none.
    pub(crate) offline_deadline: Option<Instant>,
    /// Whether it has one of the places in the queue.
    pub(crate) holds_permit: bool,
    /// How often it was handed to a connection.
    pub(crate) attempts: u32,
    /// Whether an earlier connection took it to its end.
    pub(crate) may_have_run: bool,
}

impl Request {
    pub(crate) fn new(commands: Commands, sink: ReplySink, limit: Option<Duration>) -> Self {
        let deadline = limit.and_then(Deadline::after);
        Self {
            commands,
            sink,
            deadline,
            offline_deadline: None,
            holds_permit: false,
            attempts: 0,
            may_have_run: false,
        }
    }

    /// Whether somebody still wants the replies.
    pub(crate) fn is_wanted(&self) -> bool {
        match &self.sink {
            ReplySink::One(sender) => !sender.is_closed(),
            ReplySink::Many(sender, _) => !sender.is_closed(),
            ReplySink::Abandoned => false,
        }
    }

    /// The moment after which it must not wait any more to be sent.
    pub(crate) fn due(&self) -> Option<Instant> {
        match (self.deadline, self.offline_deadline) {
            (Some(deadline), Some(offline_deadline)) => Some(deadline.at.min(offline_deadline)),
            (Some(deadline), None) => Some(deadline.at),
            (None, offline_deadline) => offline_deadline,
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
        self.sink.fail(error);
    }
}

/// Who waits for the replies of a request. Whether it still does changes nothing about the order.
pub(crate) enum ReplySink {
    /// One command.
    One(oneshot::Sender<Result<Reply, Error>>),
    /// A pipeline, with the replies so far.
    Many(oneshot::Sender<Result<Vec<Reply>, Error>>, Replies),
    /// Nobody: it was told of a timeout, or never wanted to know.
    Abandoned,
}

/// The replies to a pipeline before the last one is here.
pub(crate) enum Replies {
    /// For all of them together.
    Kept(Vec<Reply>),
    /// Handed on as they come; how many have been.
    Streamed(Arc<ReplyBuffer>, usize),
}

impl Replies {
    pub(crate) fn push(&mut self, reply: Reply) {
        match self {
            Self::Kept(replies) => replies.push(reply),
            Self::Streamed(buffer, count) => {
                *count += 1;
                buffer.push(reply);
            }
        }
    }

    /// All that were kept.
    pub(crate) fn into_kept(self) -> Vec<Reply> {
        match self {
            Self::Kept(replies) => replies,
            Self::Streamed(..) => Vec::new(),
        }
    }
}

impl ReplySink {
    /// Forgets the replies so far, as the commands will be sent again. `false`: the caller has some of them already.
    pub(crate) fn restart(&mut self) -> bool {
        match self {
            Self::Many(_, Replies::Kept(replies)) => replies.clear(),
            Self::Many(_, Replies::Streamed(_, count)) => return *count == 0,
            Self::One(_) | Self::Abandoned => {}
        }
        true
    }

    pub(crate) fn fail(self, error: Error) {
        match self {
            Self::One(sender) => drop(sender.send(Err(error))),
            Self::Many(sender, _) => drop(sender.send(Err(error))),
            Self::Abandoned => {}
        }
    }
}
