//! [`Driver`]: the one task that owns a connection's stream.
//!
//! Reading and writing make progress independently of each other: a peer that stops reading until we have read its
//! replies, as every server with a full output window does, is never waited for. What waits when the stream is ready
//! leaves in one batch:
//!
//! - with fewer than [`UNANSWERED_BATCHES`] batches unanswered, whatever waits leaves at once: an idle connection
//!   costs no delay;
//! - with more, commands pile up until a reply arrives or a batch is full. There are no timers.
//!
//! Of many replies that came together, half of what is in flight is handed out first: its callers' next commands are on
//! their way while the other half's callers run. Else client and server would take turns.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::AsyncWrite;
use tokio::runtime::RuntimeFlavor;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::debug;

use crate::backlog::Backlog;
use crate::decoder::ProtocolError;
use crate::error::LostCause;
use crate::in_flight::InFlight;
use crate::parting::Owed;
use crate::request::{Alarm, Commands, Message, Request, Waiter};
use crate::shared::{Push, Shared};
use crate::value::Value;
use crate::wire::Wire;

/// Batches that may be unanswered before smaller ones are held back. With a single one, the link would idle for a round
/// trip after each; with two, one side still waits whenever the other is slow to wake up. Four gained up to a fifth over
/// two, and most on a runtime of several threads; more gained nothing.
pub(crate) const UNANSWERED_BATCHES: usize = 4;
/// A batch of this many commands is full. The server executes a whole batch before it writes any reply, so larger
/// ones only make its first command wait.
const BATCH_COMMANDS: usize = 64;
/// A batch of this many bytes is full. The request that crosses the limit still belongs to it.
const BATCH_BYTES: u64 = 16 * 1024;
/// Commands without a reply beyond which no more are sent.
const MAX_IN_FLIGHT: usize = 8 * 1024;
/// Reads after which other tasks get their turn.
const READS_PER_TURN: usize = 32;
/// Replies that are handed out at once, at least. Of more, half of what is in flight: their callers send what comes next
/// while the other half waits, so that the server has a batch to work on while callers work on theirs.
const REPLIES_PER_TURN: usize = 16;

/// Owns a connection. As a future, it ends with it; what can go on on another connection is in the backlog then, and
/// every other waiter was told.
pub(crate) struct Driver<'a> {
    wire: Wire,
    backlog: &'a mut Backlog,
    in_flight: InFlight,
    batch: Batch,
    /// Whether a batch is being handed to the stream; until it is, no other is begun.
    writing: bool,
    /// Whether replies that were received may not have been handed out yet.
    undelivered: bool,
    /// Whether callers share this task's thread: who got a reply has its turn before anything else is looked for.
    one_thread: bool,
    stopping: Stopping,
    alarm: Alarm,
    shared: Arc<Shared>,
    /// How often a request may be sent again on other connections; none: there will be none.
    retries: Option<u32>,
}

/// The batch that is being filled.
#[derive(Default)]
struct Batch {
    commands: usize,
    bytes: u64,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.commands >= BATCH_COMMANDS || self.bytes >= BATCH_BYTES
    }
}

/// Whether requests still come.
enum Stopping {
    No,
    /// Every client is gone: end when no caller waits any more, but for what a [parting](crate::parting) takes.
    Abandoned,
    /// `close` was called: end when every reply is here.
    Closing(Vec<oneshot::Sender<()>>),
}

impl<'a> Driver<'a> {
    pub(crate) fn new(
        mut wire: Wire,
        backlog: &'a mut Backlog,
        shared: Arc<Shared>,
        retries: Option<u32>,
    ) -> Self {
        let mut alarm = Alarm::default();
        backlog.resume(&mut alarm);
        wire.set_driven();
        let one_thread = wire.runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        Self {
            wire,
            backlog,
            in_flight: InFlight::default(),
            batch: Batch::default(),
            writing: false,
            undelivered: false,
            one_thread,
            stopping: Stopping::No,
            alarm,
            shared,
            retries,
        }
    }

    /// Moves bytes both ways until neither way can go on. Ready once the connection is at its end.
    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<LostCause> {
        for _ in 0..READS_PER_TURN {
            if let Err(error) = self.write_batches(cx) {
                return Poll::Ready(self.last_words(cx, error));
            }
            if let Poll::Ready(cause) = self.poll_stopped(cx) {
                return Poll::Ready(cause);
            }
            // A reply that is here already is in time.
            if !self.undelivered && self.alarm.poll(cx).is_ready() {
                self.expire();
                // What was turned away has made room.
                continue;
            }
            if let Err(cause) = ready!(self.poll_read(cx)) {
                // A shutdown of our own ends the reading too.
                let ours = matches!((&self.stopping, &cause), (Stopping::Closing(_), LostCause::PeerClosed));
                return Poll::Ready(if ours && self.in_flight.is_empty() {
                    LostCause::Closed
                } else {
                    cause
                });
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Fills and writes batches until nothing waits, the stream takes no more, or the rest has to pile up.
    fn write_batches(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            if !self.writing {
                self.fill_batch(cx);
                self.backlog.make_room();
                let pile_up = self.in_flight.batches() >= UNANSWERED_BATCHES && !self.batch.is_full();
                if self.batch.commands == 0 || pile_up {
                    return Ok(());
                }
                self.end_batch();
            }
            match self.wire.poll_flush(cx)? {
                Poll::Ready(()) => self.writing = false,
                Poll::Pending => {
                    self.backlog.hold(cx, &mut self.alarm);
                    return Ok(());
                }
            }
        }
    }

    /// Takes waiting requests until none waits or the batch is full.
    fn fill_batch(&mut self, cx: &mut Context<'_>) {
        while !self.batch.is_full() && self.in_flight.commands() < MAX_IN_FLIGHT {
            match self.backlog.poll_next(cx) {
                Poll::Ready(Some(message)) => self.take(message),
                Poll::Ready(None) => {
                    if let Stopping::No = self.stopping {
                        self.stopping = Stopping::Abandoned;
                    }
                    return;
                }
                Poll::Pending => return,
            }
        }
        if !self.batch.is_full() {
            self.backlog.hold(cx, &mut self.alarm);
        }
    }

    /// Encodes a request into the batch, unless nobody waits for it any more.
    fn take(&mut self, message: Message) {
        match (&mut self.stopping, message) {
            (Stopping::Closing(waiting), Message::Close(done)) => waiting.push(done),
            (_, Message::Close(done)) => {
                self.backlog.refuse();
                self.stopping = Stopping::Closing(vec![done]);
            }
            (Stopping::Closing(_), Message::Request(request)) => {
                let error = self.shared.lost(&Arc::new(LostCause::Closed), request.may_have_run);
                request.fail(error);
            }
            (_, Message::Request(request)) if request.is_wanted() => self.encode(request),
            (_, Message::Request(_)) => {}
        }
    }

    fn encode(&mut self, mut request: Request) {
        let begin = self.wire.outbox.pushed();
        self.wire.outbox.push_all(&request.commands);
        let end = self.wire.outbox.pushed();
        // The server may run the first of many before it has the others.
        let runs_from = match &request.commands {
            Commands::One(_) => end,
            Commands::Many(joined) => begin + joined.first() as u64,
        };
        self.batch.commands += request.commands.count();
        self.batch.bytes += end - begin;
        if let Some(deadline) = request.deadline {
            self.alarm.note(deadline.at);
        }
        request.give_up = None;
        request.sends += 1;
        self.in_flight.push(request, runs_from);
    }

    fn end_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.in_flight.end_batch();
        self.writing = true;
        self.shared.tally.batch(batch.commands);
        self.shared.tally.in_flight(self.in_flight.commands());
    }

    /// Reads once and hands out the replies that are complete. Of many, callers get a share and their turn before the
    /// rest is.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LostCause>> {
        if !self.undelivered {
            ready!(self.wire.poll_fill(cx))?;
        }
        let share = self.in_flight.commands().div_ceil(2).max(REPLIES_PER_TURN);
        let replies = self.hand_out(share).map_err(LostCause::Protocol)?;
        self.undelivered = replies == share;
        if self.undelivered || (replies > 0 && self.one_thread) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    /// Hands out the replies that are complete, at most so many. Returns how many.
    fn hand_out(&mut self, most: usize) -> Result<usize, ProtocolError> {
        let mut replies = 0;
        while replies < most {
            let Some(value) = self.wire.decoder.next()? else { break };
            let reply = match value {
                Value::Push(message) => {
                    self.shared.tally.push();
                    match &self.shared.pushes {
                        Some(hook) => hook(Push::Message(&message)),
                        None => debug!(kind = ?message.first(), "push message ignored"),
                    }
                    continue;
                }
                Value::Error(error) => Err(error),
                value => Ok(value),
            };
            replies += 1;
            // Before the reply is handed out: who has it sees itself counted out.
            self.shared.tally.in_flight(self.in_flight.commands().saturating_sub(1));
            if !self.in_flight.answer(reply) {
                return Err(ProtocolError::Unasked);
            }
        }
        self.shared.tally.replies(replies as u64);
        Ok(replies)
    }

    /// Tells those whose time is up. What was encoded leaves nevertheless, and its reply keeps its place.
    fn expire(&mut self) {
        let now = Instant::now();
        let shared = &self.shared;
        let next = self.in_flight.expire(now, |waiter: Waiter, deadline| {
            shared.tally.timed_out();
            waiter.fail(shared.timed_out(deadline.limit, true));
        });
        if let Some(next) = next {
            self.alarm.note(next);
        }
        self.backlog.expire(now, &mut self.alarm, |request| {
            shared.tally.timed_out();
            let limit = request.deadline.map_or(Duration::ZERO, |deadline| deadline.limit);
            let may_have_run = request.may_have_run;
            request.fail(shared.timed_out(limit, may_have_run));
        });
    }

    /// A peer that will not be written to may have said why, such as "max number of clients reached".
    fn last_words(&mut self, cx: &mut Context<'_>, error: io::Error) -> LostCause {
        // Nobody gets a turn any more: all replies at once.
        let mut handed_out = self.hand_out(usize::MAX);
        for _ in 0..READS_PER_TURN {
            match self.wire.poll_fill(cx) {
                Poll::Ready(Ok(())) if handed_out.is_ok() => handed_out = self.hand_out(usize::MAX),
                Poll::Ready(Err(LostCause::PeerClosed)) => return LostCause::PeerClosed,
                _ => break,
            }
        }
        LostCause::Io(error)
    }

    /// Ready when this side has ended the connection.
    fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<LostCause> {
        match self.stopping {
            Stopping::No => return Poll::Pending,
            Stopping::Abandoned => ready!(self.in_flight.poll_abandoned(cx)),
            Stopping::Closing(_) if !self.in_flight.is_empty() => return Poll::Pending,
            Stopping::Closing(_) => {
                if let Err(error) = ready!(Pin::new(&mut self.wire.socket).poll_shutdown(cx)) {
                    debug!(%error, "shutdown failed");
                }
            }
        }
        Poll::Ready(LostCause::Closed)
    }

    /// Puts back what another connection may take over, and tells everybody else who waits.
    fn end(&mut self, cause: LostCause) -> Arc<LostCause> {
        debug!(%cause, "connection ended");
        // Before anybody is told: who learns of the end must find nothing that relied on messages.
        if let Some(hook) = &self.shared.pushes {
            hook(Push::Gap);
        }
        self.shared.tally.in_flight(0);
        if let (Stopping::Abandoned, LostCause::Closed) = (&self.stopping, &cause) {
            self.wire.owed = Owed::Replies(self.in_flight.commands());
        }
        let cause = Arc::new(cause);
        let retries = if matches!(*cause, LostCause::Closed) { None } else { self.retries };
        let mut again = Vec::new();
        for (mut request, ran) in self.in_flight.drain(self.wire.outbox.written()) {
            request.may_have_run |= ran;
            let harmless = !request.may_have_run || request.is_idempotent();
            let may_retry = harmless && retries.is_some_and(|retries| request.sends <= retries);
            if may_retry && request.is_wanted() && request.waiter.restart() {
                again.push(request);
            } else {
                let error = self.shared.lost(&cause, request.may_have_run);
                request.fail(error);
            }
        }
        self.shared.tally.retried(again.len());
        self.backlog.put_back(again.into_iter());
        cause
    }
}

impl Future for Driver<'_> {
    type Output = Arc<LostCause>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Arc<LostCause>> {
        let this = self.get_mut();
        let cause = ready!(this.poll_connection(cx));
        Poll::Ready(this.end(cause))
    }
}

#[cfg(test)]
mod tests;
