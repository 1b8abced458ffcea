//! Reads, delivers replies, and fails requests whose deadline has passed.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;
use valkey_rdma_resp::{RespError, Value};

use super::Driver;
use crate::error::LostCause;
use crate::link::request::{ReplySink, Request};
use crate::link::state::Push;

/// The fewest replies delivered in one go. Of more, half of what is in flight is delivered: those callers send their
/// next commands while the other half waits, so the server has a batch to work on meanwhile.
const REPLIES_PER_TURN: usize = 16;

/// The result of one read.
pub(super) enum Read {
    /// Something was read, and every complete reply is delivered.
    Delivered,
    /// Callers run before the next read: they have replies to act on.
    Yield,
    /// Callers are woken together, and this task behind them.
    Deferred,
    /// Nothing is left to read. The stream wakes the task.
    Drained,
}

impl Driver {
    /// Reads once and delivers complete replies. Of many, it delivers a share and yields before the rest.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<Read, LostCause> {
        if !self.has_buffered_replies {
            match self.raw.poll_fill(cx) {
                Poll::Ready(filled) => filled?,
                Poll::Pending => return Ok(Read::Drained),
            }
            self.state.counters.bytes_read();
        }
        let share = self.in_flight.commands().div_ceil(2).max(REPLIES_PER_TURN);
        let (replies, several) = self.deliver_replies(share).map_err(LostCause::Protocol)?;
        self.has_buffered_replies = replies == share;
        // Several callers are likely to send again at the same time: then their commands leave together.
        Ok(match several {
            true if !self.one_thread => Read::Deferred,
            _ if self.has_buffered_replies || several => Read::Yield,
            _ => Read::Delivered,
        })
    }

    /// Delivers complete replies, up to `most`. Returns how many, and true if they completed several requests.
    pub(super) fn deliver_replies(&mut self, most: usize) -> Result<(usize, bool), RespError> {
        let (requests, commands) = (self.in_flight.requests(), self.in_flight.commands());
        let outcome = self.take_replies(most);
        let replies = commands - self.in_flight.commands();
        self.progress += replies as u64;
        let several = requests - self.in_flight.requests() > 1;
        if several && !self.one_thread {
            self.together.defer(&mut self.callers, &self.task);
        } else {
            self.callers.drain(..).for_each(Waker::wake);
        }
        outcome.map(|()| (replies, several))
    }

    /// Decodes complete replies, up to `most`, and leaves each for its caller. The callers to wake are collected.
    fn take_replies(&mut self, most: usize) -> Result<(), RespError> {
        let mut replies = 0;
        while replies < most {
            let reply = match self.raw.decoder.next()? {
                None => break,
                Some(Value::Push(message)) => {
                    self.state.counters.push();
                    match &self.state.pushes {
                        Some(hook) => hook(Push::Message(&message)),
                        None => debug!(kind = ?message.first(), "push message ignored"),
                    }
                    continue;
                }
                Some(Value::Error(error)) => Err(error),
                Some(value) => Ok(value),
            };
            replies += 1;
            // Counted before it is delivered, so that no caller sees itself in flight.
            self.state.counters.reply(self.in_flight.commands().saturating_sub(1));
            self.callers.extend(self.in_flight.answer(reply)?);
        }
        Ok(())
    }

    /// Fails requests whose deadline has passed. Commands already encoded are still sent, and their replies are
    /// dropped when they arrive.
    pub(super) fn expire(&mut self) {
        let now = Instant::now();
        let state = &self.state;
        let next = self.in_flight.expire(now, |sink: ReplySink, deadline| {
            state.counters.timed_out();
            sink.fail(state.timed_out(deadline.limit, true));
        });
        self.fail_late(self.queue.take_late(now, next));
    }

    /// Fails requests that have waited too long to be sent.
    pub(super) fn fail_late(&self, late: Vec<Request>) {
        for request in late {
            self.state.counters.timed_out();
            let limit = request.deadline.map_or(Duration::ZERO, |deadline| deadline.limit);
            let may_have_run = request.may_have_run;
            request.fail(self.state.timed_out(limit, may_have_run));
        }
    }
}
