//! What a driver does with a connection: it sends batches, on the connection task or on a caller's; it delivers replies; and at the end it
//! decides what becomes of the requests.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tracing::debug;
use valkey_rdma_resp::{RespError, Value};

use super::{Driver, MAX_BATCHES_IN_FLIGHT, MAX_IN_FLIGHT, READS_PER_TURN};
use crate::command::Commands;
use crate::error::LostCause;
use crate::link::Outstanding;
use crate::link::queue::{Load, Submit};
use crate::link::request::Request;
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

/// Sending.
impl Driver {
    /// Sends what waits, on the task of a caller that [must](crate::link::queue::Pushed::MustSend). The connection task
    /// waits for the reply anyway. It also writes what the stream does not take at once.
    ///
    /// # Panics
    /// If the stream does, which may be the user's own. The connection then ends, as it would on the connection task.
    pub(crate) fn send_inline(&mut self) {
        // Streams of the program may rely on their runtime; the caller's thread may have none. Ours do not, to write.
        let is_ours = self.raw.socket.is_over_tcp() || self.raw.socket.is_driven();
        let runtime = (!is_ours).then(|| self.raw.runtime.clone());
        let _entered = runtime.as_ref().map(Handle::enter);
        let task = std::mem::replace(&mut self.task, Waker::noop().clone());
        let mut cx = Context::from_waker(&task);
        let sent = catch_unwind(AssertUnwindSafe(|| {
            loop {
                self.write_batch(&mut cx)?;
                if self.raw.is_outdated() {
                    // The connection task ends it.
                    return Ok(false);
                }
                if let Ok(timer) = self.sleep(&cx) {
                    return Ok(timer.is_none_or(|at| self.timer.fires_by(at)));
                }
            }
        }));
        self.task = task;
        match sent {
            Ok(Ok(true)) if !self.writing => return,
            // The connection task writes the rest, or sets its timer for a caller that pushed meanwhile.
            Ok(Ok(_)) => {}
            Ok(Err(error)) => self.write_error = Some(error),
            Err(panic) => {
                self.write_error = Some(io::Error::other("the stream panicked"));
                // It may have written any part of the commands of other callers too.
                self.raw.write_buffer.assume_written();
                self.task.wake_by_ref();
                resume_unwind(panic);
            }
        }
        self.task.wake_by_ref();
    }

    /// Fills and writes batches until no request waits, the stream is full, or the rest is held back.
    pub(super) fn write_batches(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.write_batch(cx)? {}
        Ok(())
    }

    /// Goes on with the batch that is being written, or begins the next. Returns true if all of one was written.
    fn write_batch(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if let Some(error) = self.write_error.take() {
            return Err(error);
        }
        let written = if self.writing {
            self.raw.poll_flush(cx)?
        } else if self.raw.is_outdated() {
            // What waits is for the next connection.
            return Ok(false);
        } else {
            let load = self.fill_batch();
            if load.commands == 0 {
                return Ok(false);
            }
            self.poll_end_batch(cx, load)?
        };
        self.writing = written.is_pending();
        Ok(!self.writing)
    }

    /// Takes the next batch from the queue, and returns its load: nothing if none waits, or none that may leave now.
    fn fill_batch(&mut self) -> Load {
        let only_full = self.in_flight.batches() >= MAX_BATCHES_IN_FLIGHT;
        let most = MAX_IN_FLIGHT.saturating_sub(self.in_flight.commands());
        let mut position = self.raw.write_buffer.pushed();
        let mut batch = Load::default();
        let mut late = Vec::new();
        let add = |request: Request| {
            batch = batch + request.load;
            position = self.in_flight.push(request, position);
        };
        let ending = self.queue.take(only_full, most, add, &mut late);
        self.ending = ending.or(self.ending);
        if !late.is_empty() {
            self.fail_late(late);
        }
        batch
    }

    /// Ends the batch and encodes it: straight into the send buffer if possible, otherwise into the write buffer, which
    /// keeps large values of a [`BufferPool`](valkey_rdma_transport::BufferPool) where they are. Ready when all of it was
    /// accepted by the stream.
    fn poll_end_batch(&mut self, cx: &mut Context<'_>, batch: Load) -> Poll<io::Result<()>> {
        let in_flight = &self.in_flight;
        let written = if in_flight.unencoded().any(Commands::has_shared_bytes) {
            Ok(false)
        } else {
            self.raw.write_directly(cx, batch.bytes, &mut |room| {
                in_flight.unencoded().fold(0, |at, commands| at + commands.copy_to(&mut room[at..]))
            })
        };
        if let Ok(false) = written {
            in_flight.unencoded().for_each(|commands| self.raw.write_buffer.push_all(commands));
        }
        self.in_flight.end_batch();
        self.writing = true;
        self.progress += 1;
        self.state.counters.batch(batch.commands, self.in_flight.commands());
        if written? { Poll::Ready(Ok(())) } else { self.raw.poll_flush(cx) }
    }
}

/// Receiving.
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
                Some(Value::Error(error)) => {
                    if let Some(connector) = &self.connector {
                        connector.doubt(&self.raw, &error);
                    }
                    Err(error)
                }
                Some(value) => Ok(value),
            };
            replies += 1;
            // Counted before it is delivered, so that no caller sees itself in flight.
            self.state.counters.reply(self.in_flight.commands().saturating_sub(1));
            self.callers.extend(self.in_flight.answer(reply)?);
        }
        self.callers.extend(self.in_flight.pass_on());
        Ok(())
    }

    /// Fails requests whose deadline has passed. Commands already encoded are still sent, and their replies are
    /// dropped when they arrive.
    pub(super) fn expire(&mut self) {
        let now = Instant::now();
        let state = &self.state;
        let next = self.in_flight.expire(now, |replies, deadline| {
            state.counters.timed_out();
            replies.fail(state.timed_out(deadline.limit, true), None);
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

/// The end.
impl Driver {
    /// Reads what a server said before it stopped reading, such as "max number of clients reached".
    pub(super) fn read_final_error(&mut self, cx: &mut Context<'_>, error: io::Error) -> LostCause {
        // All replies at once: nothing is sent any more.
        let mut delivered = self.deliver_replies(usize::MAX);
        for _ in 0..READS_PER_TURN {
            match self.raw.fill_last(cx) {
                Poll::Ready(Ok(())) if delivered.is_ok() => delivered = self.deliver_replies(usize::MAX),
                Poll::Ready(Err(LostCause::PeerClosed)) => return LostCause::PeerClosed,
                _ => break,
            }
        }
        LostCause::Io(error)
    }

    /// Requeues requests that another connection may take over, and fails the others.
    pub(super) fn end(&mut self, cause: LostCause) -> Arc<LostCause> {
        debug!(%cause, "connection ended");
        // Before any request fails: a caller that learns of the end must find nothing left that relied on push
        // messages.
        if let Some(hook) = &self.state.pushes {
            hook(Push::Gap);
        }
        self.state.counters.ended();
        if let LostCause::Closed | LostCause::Moved = &cause {
            // The server answers the commands that left completely. The rest is never sent.
            self.raw.outstanding =
                Outstanding::Replies(self.in_flight.outstanding(self.raw.write_buffer.written()));
            self.raw.write_buffer.discard();
        }
        let cause = Arc::new(cause);
        let connector = self.connector.as_ref().filter(|_| !matches!(*cause, LostCause::Closed));
        let retries = connector.map(|connector| connector.config.retries);
        let mut again = Vec::new();
        for (mut request, ran) in self.in_flight.drain(self.raw.write_buffer.written()) {
            request.may_have_run |= ran;
            let harmless = !request.may_have_run || request.may_run_twice();
            let may_retry = harmless && retries.is_some_and(|retries| request.attempts <= retries);
            if may_retry && request.is_wanted() && request.replies.restart() {
                again.push(request);
            } else {
                let error = self.state.lost_error(&cause, request.may_have_run);
                request.fail(error);
            }
        }
        self.state.counters.retried(again.len());
        self.queue.put_back(again.into_iter());
        cause
    }
}
