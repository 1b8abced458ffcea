//! [`Driver`]: what owns a connection's stream.
//!
//! Reading and writing make progress independently of each other: a peer that stops reading until we have read its
//! replies, as every server with a full output window does, is never waited for. What waits when the stream is ready
//! leaves in one batch:
//!
//! - with fewer than [`UNANSWERED_BATCHES`] batches unanswered, whatever waits leaves at once: an idle connection
//!   costs no delay;
//! - with more, commands pile up until a reply arrives or a batch is full. There are no timers.
//!
//! The link's task drives: it always has a read pending, and its waker is the only one that the stream is given. A caller
//! that has the connection for itself [sends](Driver::send_lone) with that waker too, without waking that task.
//!
//! Of many replies that came together, half of what is in flight is handed out first: its callers' next commands are on
//! their way while the other half's callers run. Else client and server would take turns.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::AsyncWrite;
use tokio::runtime::RuntimeFlavor;
use tokio::sync::oneshot;
use tracing::debug;

use crate::backlog::Backlog;
use crate::error::LostCause;
use crate::in_flight::InFlight;
use crate::request::{Alarm, Commands, Message, Request};
use crate::shared::Shared;
use crate::wire::Wire;

mod end;
mod replies;

use replies::Read;

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

/// Owns a connection, and what waits to be sent on it.
pub(crate) struct Driver {
    wire: Wire,
    backlog: Backlog,
    in_flight: InFlight,
    batch: Batch,
    /// Whether a batch is being handed to the stream; until it is, no other is begun.
    writing: bool,
    /// Why the stream took no more from a caller. The link's task ends the connection.
    broken: Option<io::Error>,
    /// Whether the request answered last was the only one in flight, and none was sent since: the next is likely to come
    /// from its caller, and to come alone.
    lone: bool,
    /// Whether replies that were received may not have been handed out yet.
    undelivered: bool,
    /// Whether callers share this task's thread: who got a reply has its turn before anything else is looked for.
    one_thread: bool,
    stopping: Stopping,
    alarm: Alarm,
    /// Whether deadlines have passed, and requests are to be failed once what has arrived is delivered.
    overdue: bool,
    /// Fires when `close` gives up waiting for replies.
    close_alarm: Alarm,
    /// Wakes the link's task.
    task: Waker,
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

impl Driver {
    pub(crate) fn new(
        mut wire: Wire,
        mut backlog: Backlog,
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
            broken: None,
            lone: false,
            undelivered: false,
            one_thread,
            stopping: Stopping::No,
            alarm,
            overdue: false,
            close_alarm: Alarm::default(),
            task: Waker::noop().clone(),
            shared,
            retries,
        }
    }

    /// Drives, on the link's task. Ready once the connection has ended: what can go on on another one is in the backlog
    /// then, and every other waiter was told.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Arc<LostCause>> {
        self.task.clone_from(cx.waker());
        let cause = ready!(self.poll_connection(cx));
        Poll::Ready(self.end(cause))
    }

    pub(crate) fn into_backlog(self) -> Backlog {
        self.backlog
    }

    /// Whether a caller has the connection for itself, as far as can be known: nothing is under way, nothing waits.
    pub(crate) fn is_lone(&self) -> bool {
        self.lone && self.backlog.is_empty() && matches!(self.stopping, Stopping::No)
    }

    /// Whether a request can be sent without the link's task: it need not be told of the deadline.
    pub(crate) fn is_watched(&self, request: &Request) -> bool {
        request.deadline.is_none_or(|deadline| self.alarm.goes_off_by(deadline.at))
    }

    /// Sends a request on behalf of its caller, who is [alone](Self::is_lone), on the caller's task. The link's task,
    /// which waits for the reply anyway, goes on with whatever the stream does not take at once.
    ///
    /// # Panics
    /// If the stream does, which may be one of the user's. That ends the connection, as it would on the link's task.
    pub(crate) fn send_lone(&mut self, request: Request) {
        self.encode(request);
        self.end_batch();
        // Streams may rely on their runtime; the caller may be on a thread without one.
        let _entered = self.wire.runtime.enter();
        let mut cx = Context::from_waker(&self.task);
        match catch_unwind(AssertUnwindSafe(|| self.wire.poll_flush(&mut cx))) {
            Ok(Poll::Ready(Ok(()))) => return self.writing = false,
            Ok(Poll::Ready(Err(error))) => self.broken = Some(error),
            Ok(Poll::Pending) => {}
            Err(panic) => {
                self.broken = Some(io::Error::other("the stream panicked"));
                self.task.wake_by_ref();
                resume_unwind(panic);
            }
        }
        self.task.wake_by_ref();
    }

    /// Moves bytes both ways until neither way can go on. Ready once the connection is at its end.
    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<LostCause> {
        if self.poll_close_deadline(cx).is_ready() {
            debug!("closed with {} commands unanswered", self.in_flight.commands());
            return Poll::Ready(LostCause::Closed);
        }
        let was_overdue = self.overdue;
        let mut drained = false;
        for _ in 0..READS_PER_TURN {
            if let Err(error) = self.write_batches(cx) {
                return Poll::Ready(self.last_words(cx, error));
            }
            if let Poll::Ready(cause) = self.poll_stopped(cx) {
                return Poll::Ready(cause);
            }
            match self.poll_read(cx) {
                Ok(Read::Delivered) => {}
                Ok(Read::Drained) => {
                    drained = true;
                    break;
                }
                Ok(Read::Yield) => break,
                Err(cause) => {
                    // A shutdown of our own ends the reading too.
                    let ours =
                        matches!((&self.stopping, &cause), (Stopping::Closing(_), LostCause::PeerClosed));
                    return Poll::Ready(if ours && self.in_flight.is_empty() {
                        LostCause::Closed
                    } else {
                        cause
                    });
                }
            }
        }
        self.overdue |= self.alarm.poll(cx).is_ready();
        // A reply that has arrived is in time, so everything is read first. One turn more is enough for that: a server
        // that never stops sending cannot keep deadlines from being met.
        if self.overdue && !self.undelivered && (drained || was_overdue) {
            self.overdue = false;
            self.expire();
            // The requests that were failed have made room, and the next deadline needs the alarm.
            cx.waker().wake_by_ref();
        } else if !drained {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Ready when `close` was called and has waited long enough.
    fn poll_close_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(Some(deadline)) = self.shared.closing.get() {
            self.close_alarm.note(*deadline);
            return self.close_alarm.poll(cx);
        }
        Poll::Pending
    }

    /// Fills and writes batches until nothing waits, the stream takes no more, or the rest has to pile up.
    fn write_batches(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
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
        self.lone = false;
        request.give_up = None;
        request.sends += 1;
        self.in_flight.push(request, runs_from, end);
    }

    fn end_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.in_flight.end_batch();
        self.writing = true;
        self.shared.tally.batch(batch.commands);
        self.shared.tally.in_flight(self.in_flight.commands());
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
}

#[cfg(test)]
mod tests;
