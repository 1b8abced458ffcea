//! [`InFlight`]: requests without a reply, in order, with those of the batch that is being filled.

use std::collections::VecDeque;
use std::task::Waker;

use tokio::time::Instant;
use valkey_rdma_resp::RespError;

use super::queue::Load;
use super::reply_slot::ReplySender;
use super::request::{Deadline, Request};
use crate::command::EncodedPipeline;
use crate::command::{Commands, Reply};

/// A request that belongs to a batch.
struct Sent {
    request: Request,
    /// Replies still to come.
    missing: usize,
    /// Position in the stream where its first command ends. Once that much is written, the server may run it.
    first_command_end: u64,
    /// Position in the stream where its last command ends.
    ends_at: u64,
    /// Whether it is the last of its batch.
    ends_batch: bool,
}

/// A queue: replies arrive in the order of the requests.
#[derive(Default)]
pub(crate) struct InFlight {
    requests: VecDeque<Sent>,
    /// Commands without a reply.
    commands: usize,
    /// Batches with unanswered requests.
    batches: usize,
    /// How many of the newest requests belong to the batch being filled: they are encoded next.
    unencoded: usize,
}

impl InFlight {
    /// Adds a request that begins at `position` of the stream to the batch being filled. Returns where it ends.
    pub(crate) fn push(&mut self, mut request: Request, position: u64) -> u64 {
        let Load { commands, bytes } = request.load;
        let ends_at = position + bytes as u64;
        // The server may run the first command of a pipeline before it has the others.
        let first_command_end = match &request.commands {
            Commands::One(_) => ends_at,
            Commands::Many(pipeline) => position + pipeline.first() as u64,
        };
        request.offline_deadline = None;
        request.attempts += 1;
        self.commands += commands;
        self.unencoded += 1;
        self.requests.push_back(Sent {
            request,
            missing: commands,
            first_command_end,
            ends_at,
            ends_batch: false,
        });
        ends_at
    }

    /// The commands of the batch being filled, in order.
    pub(crate) fn unencoded(&self) -> impl Iterator<Item = &Commands> {
        self.requests.range(self.requests.len() - self.unencoded..).map(|sent| &sent.request.commands)
    }

    /// Ends a batch after the newest request. Its requests are encoded.
    pub(crate) fn end_batch(&mut self) {
        self.unencoded = 0;
        if let Some(newest) = self.requests.back_mut() {
            newest.ends_batch = true;
            self.batches += 1;
        }
    }

    pub(crate) fn commands(&self) -> usize {
        self.commands
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn batches(&self) -> usize {
        self.batches
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Hands a reply to the oldest request. Returns what wakes its caller, if that is left to do. `Err`: no request is
    /// unanswered.
    pub(crate) fn answer(&mut self, reply: Reply) -> Result<Option<Waker>, RespError> {
        let oldest = self.requests.front_mut().ok_or(RespError::Unsolicited)?;
        self.commands -= 1;
        oldest.missing -= 1;
        if oldest.missing > 0 {
            oldest.request.replies.push(reply);
            return Ok(None);
        }
        let oldest = self.requests.pop_front().ok_or(RespError::Unsolicited)?;
        self.batches -= usize::from(oldest.ends_batch);
        let Request { commands, replies, .. } = oldest.request;
        Ok(replies.complete(reply, commands))
    }

    /// Lets the caller of the oldest request take the replies so far, if it is a streamed pipeline. Returns what wakes the caller, if it waits.
    pub(crate) fn pass_on(&mut self) -> Option<Waker> {
        self.requests.front_mut()?.request.replies.pass_on()
    }

    /// Passes the senders of requests past their deadline to `fail`; the places of the requests in the order stay. Returns
    /// the earliest deadline left.
    pub(crate) fn expire(
        &mut self,
        now: Instant,
        mut fail: impl FnMut(&mut ReplySender, Deadline),
    ) -> Option<Instant> {
        let mut next = None;
        for sent in &mut self.requests {
            let Some(deadline) = sent.request.deadline else { continue };
            if deadline.at > now {
                next = Some(next.map_or(deadline.at, |next: Instant| next.min(deadline.at)));
                continue;
            }
            sent.request.deadline = None;
            sent.request.commands = Commands::Many(EncodedPipeline::default());
            fail(&mut sent.request.replies, deadline);
        }
        next
    }

    /// How many replies the server owes, given how much was written. For a pipeline written in part, this is the lower
    /// bound.
    pub(crate) fn outstanding(&self, written: u64) -> usize {
        let outstanding = |sent: &Sent| {
            if sent.ends_at <= written {
                sent.missing
            } else {
                let answered = sent.request.load.commands - sent.missing;
                usize::from(sent.first_command_end <= written).saturating_sub(answered)
            }
        };
        self.requests.iter().map(outstanding).sum()
    }

    /// Empties it, oldest first. Each request comes with whether this connection may have run it, given how much was
    /// written.
    pub(crate) fn drain(&mut self, written: u64) -> impl Iterator<Item = (Request, bool)> + '_ {
        self.commands = 0;
        self.batches = 0;
        self.unencoded = 0;
        self.requests.drain(..).map(move |sent| (sent.request, sent.first_command_end <= written))
    }
}
