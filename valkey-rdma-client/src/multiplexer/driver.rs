//! [`Driver`]: owns a connection, writes requests in batches and delivers the replies.
//!
//! Reading and writing progress independently: a server that stops reading until its replies are read, as one with a
//! full output window does, never blocks this side. Requests that wait when the stream is ready leave in one batch:
//!
//! - with fewer than [`MAX_BATCHES_IN_FLIGHT`] batches in flight, waiting requests leave at once, so an idle
//!   connection adds no delay;
//! - with more, requests wait until a reply arrives or a batch is full. It uses no timers.
//!
//! The connection task polls the driver. It always has a read pending, and only its waker is given to the stream. A
//! caller that uses the connection alone [sends](Driver::send_inline) with the same waker, without waking that task.
//!
//! When many replies arrive together, half of them are delivered first. Their callers then send the next commands
//! while the other half is delivered. Otherwise client and server would take turns.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::AsyncWrite;
use tokio::runtime::RuntimeFlavor;
use tokio::sync::oneshot;
use tracing::debug;

use super::deadline::DeadlineTimer;
use super::in_flight::InFlight;
use super::queue::RequestQueue;
use super::request::{Message, Request};
use super::state::MultiplexerState;
use crate::connection::RawConnection;
use crate::error::LostCause;
use crate::resp::Commands;

mod read;
mod shutdown;

use read::Read;

/// The most batches in flight before smaller ones are held back. With one, the connection would idle for a round trip
/// after each batch. With two, one side still waits whenever the other is slow to wake up. Four gained up to 20 % over
/// two, most on multi-threaded runtimes; more gained nothing.
pub(crate) const MAX_BATCHES_IN_FLIGHT: usize = 4;
/// A batch of this many commands is full. The server executes a whole batch before it writes any reply, so in larger
/// batches the first command only waits longer.
const BATCH_COMMANDS: usize = 64;
/// A batch of this many bytes is full. The request that exceeds the limit still belongs to it.
const BATCH_BYTES: u64 = 16 * 1024;
/// The most commands in flight.
const MAX_IN_FLIGHT: usize = 8 * 1024;
/// Reads per poll, after which the task yields.
const READS_PER_TURN: usize = 32;

/// Owns a connection and the requests that wait to be sent on it.
pub(crate) struct Driver {
    raw: RawConnection,
    queue: RequestQueue,
    in_flight: InFlight,
    batch: Batch,
    /// True while a batch is being written; no other batch is begun meanwhile.
    writing: bool,
    /// A write error found on a caller's task. The connection task then ends the connection.
    write_error: Option<io::Error>,
    /// True if the last reply left nothing in flight and answered a single request: one caller is using the connection
    /// serially.
    exclusive: bool,
    /// True if received replies may remain undelivered.
    has_buffered_replies: bool,
    /// True on a current-thread runtime: yield after delivering replies, so that callers can send before the next
    /// read.
    one_thread: bool,
    shutdown: ShutdownState,
    timer: DeadlineTimer,
    /// True if deadlines have passed. The requests fail once every reply that has arrived is delivered.
    overdue: bool,
    /// Fires when `close` gives up waiting for replies.
    close_timer: DeadlineTimer,
    /// Wakes the connection task.
    task: Waker,
    state: Arc<MultiplexerState>,
    /// How often a request may be sent again on other connections. `None`: there will be no other connection.
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

/// Whether new requests are accepted.
enum ShutdownState {
    No,
    /// Every client was dropped: no caller waits any more. The connection drains what the server still owes, then
    /// closes.
    Abandoned,
    /// `close` was called: ends after the last reply.
    Closing(Vec<oneshot::Sender<()>>),
}

impl Driver {
    pub(crate) fn new(
        mut raw: RawConnection,
        mut queue: RequestQueue,
        state: Arc<MultiplexerState>,
        retries: Option<u32>,
    ) -> Self {
        let mut timer = DeadlineTimer::default();
        queue.resume(&mut timer);
        raw.drive_inline();
        let one_thread = raw.runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        Self {
            raw,
            queue,
            in_flight: InFlight::default(),
            batch: Batch::default(),
            writing: false,
            write_error: None,
            exclusive: false,
            has_buffered_replies: false,
            one_thread,
            shutdown: ShutdownState::No,
            timer,
            overdue: false,
            close_timer: DeadlineTimer::default(),
            task: Waker::noop().clone(),
            state,
            retries,
        }
    }

    /// Moves bytes both ways, on the connection task. Ready once the connection has ended. Requests that may continue
    /// on another connection are then in the queue, and every other one has failed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Arc<LostCause>> {
        self.task.clone_from(cx.waker());
        let cause = ready!(self.poll_connection(cx));
        Poll::Ready(self.end(cause))
    }

    pub(crate) fn into_queue(self) -> RequestQueue {
        self.queue
    }

    /// True if a single caller uses the connection, as far as can be known: nothing is in flight and nothing waits.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.exclusive && self.queue.is_empty() && matches!(self.shutdown, ShutdownState::No)
    }

    /// True if a request can be sent without the connection task: the timer fires by its deadline already.
    pub(crate) fn deadline_is_armed(&self, request: &Request) -> bool {
        request.deadline.is_none_or(|deadline| self.timer.fires_by(deadline.at))
    }

    /// Sends a request on the task of its caller, which uses the connection [exclusively](Self::is_exclusive). The
    /// connection task waits for the reply anyway. It also writes what the stream does not take at once.
    ///
    /// # Panics
    /// If the stream does, which may be the user's own. The connection then ends, as it would on the connection task.
    pub(crate) fn send_inline(&mut self, request: Request) {
        self.add(request);
        // Streams may rely on their runtime; the caller's thread may have none.
        let _entered = self.raw.runtime.enter();
        let task = std::mem::replace(&mut self.task, Waker::noop().clone());
        let mut cx = Context::from_waker(&task);
        let written = catch_unwind(AssertUnwindSafe(|| self.poll_end_batch(&mut cx)));
        self.task = task;
        match written {
            Ok(Poll::Ready(Ok(()))) => return self.writing = false,
            Ok(Poll::Ready(Err(error))) => self.write_error = Some(error),
            Ok(Poll::Pending) => {}
            Err(panic) => {
                self.write_error = Some(io::Error::other("the stream panicked"));
                self.task.wake_by_ref();
                resume_unwind(panic);
            }
        }
        self.task.wake_by_ref();
    }

    /// Moves bytes both ways until neither way can progress. Ready once the connection is at its end.
    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<LostCause> {
        if self.poll_close_deadline(cx).is_ready() {
            debug!("closed with {} commands unanswered", self.in_flight.commands());
            return Poll::Ready(LostCause::Closed);
        }
        let was_overdue = self.overdue;
        let mut drained = false;
        for _ in 0..READS_PER_TURN {
            if let Err(error) = self.write_batches(cx) {
                return Poll::Ready(self.read_final_error(cx, error));
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
                    // Our own shutdown ends the reading too.
                    let ours = matches!(
                        (&self.shutdown, &cause),
                        (ShutdownState::Closing(_), LostCause::PeerClosed)
                    );
                    return Poll::Ready(if ours && self.in_flight.is_empty() {
                        LostCause::Closed
                    } else {
                        cause
                    });
                }
            }
        }
        self.overdue |= self.timer.poll(cx).is_ready();
        // A reply that has arrived is in time, so everything is read first. One more poll is enough for that: a server
        // that never stops sending cannot keep deadlines from being met.
        if self.overdue && !self.has_buffered_replies && (drained || was_overdue) {
            self.overdue = false;
            self.expire();
            // The failed requests have made room, and the timer must be armed for the next deadline.
            cx.waker().wake_by_ref();
        } else if !drained {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Ready when the deadline of `close` has passed.
    fn poll_close_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(Some(deadline)) = self.state.closing.get() {
            self.close_timer.arm(*deadline);
            return self.close_timer.poll(cx);
        }
        Poll::Pending
    }

    /// Fills and writes batches until no request waits, the stream is full, or the rest is held back.
    fn write_batches(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Some(error) = self.write_error.take() {
            return Err(error);
        }
        loop {
            if !self.writing {
                self.fill_batch(cx);
                self.queue.release_permits();
                let hold_back = self.in_flight.batches() >= MAX_BATCHES_IN_FLIGHT && !self.batch.is_full();
                if self.batch.commands == 0 || hold_back {
                    return Ok(());
                }
            }
            let written = if self.writing { self.raw.poll_flush(cx)? } else { self.poll_end_batch(cx)? };
            match written {
                Poll::Ready(()) => self.writing = false,
                Poll::Pending => {
                    self.queue.pull(cx, &mut self.timer);
                    return Ok(());
                }
            }
        }
    }

    /// Takes waiting requests until none is left or the batch is full.
    fn fill_batch(&mut self, cx: &mut Context<'_>) {
        while !self.batch.is_full() && self.in_flight.commands() < MAX_IN_FLIGHT {
            match self.queue.poll_next(cx) {
                Poll::Ready(Some(message)) => self.take(message),
                Poll::Ready(None) => {
                    if let ShutdownState::No = self.shutdown {
                        self.shutdown = ShutdownState::Abandoned;
                    }
                    return;
                }
                Poll::Pending => return,
            }
        }
        if !self.batch.is_full() {
            self.queue.pull(cx, &mut self.timer);
        }
    }

    /// Adds a request to the batch, unless its caller has gone away.
    fn take(&mut self, message: Message) {
        match (&mut self.shutdown, message) {
            (ShutdownState::Closing(waiting), Message::Close(done)) => waiting.push(done),
            (_, Message::Close(done)) => {
                self.queue.refuse();
                self.shutdown = ShutdownState::Closing(vec![done]);
            }
            (ShutdownState::Closing(_), Message::Request(request)) => {
                let error = self.state.lost(&Arc::new(LostCause::Closed), request.may_have_run);
                request.fail(error);
            }
            (_, Message::Request(request)) if request.is_wanted() => self.add(request),
            (_, Message::Request(_)) => {}
        }
    }

    /// Adds a request to the batch.
    fn add(&mut self, mut request: Request) {
        let begin = self.raw.write_buffer.pushed() + self.batch.bytes;
        let end = begin + request.commands.encoded_len() as u64;
        // The server may run the first command of a pipeline before it has the others.
        let first_command_end = match &request.commands {
            Commands::One(_) => end,
            Commands::Many(joined) => begin + joined.first() as u64,
        };
        self.batch.commands += request.commands.count();
        self.batch.bytes += end - begin;
        if let Some(deadline) = request.deadline {
            self.timer.arm(deadline.at);
        }
        self.exclusive = false;
        request.offline_deadline = None;
        request.attempts += 1;
        self.in_flight.push(request, first_command_end, end);
    }

    /// Ends the batch and encodes it: straight into the send buffer if possible, otherwise into the write buffer, which
    /// keeps large values of a [`BufferPool`](valkey_rdma_transport::BufferPool) where they are. Ready when all of it was
    /// accepted by the stream.
    fn poll_end_batch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let batch = std::mem::take(&mut self.batch);
        let in_flight = &self.in_flight;
        let written = if in_flight.unencoded().any(Commands::has_shared_bytes) {
            Ok(false)
        } else {
            self.raw.write_directly(cx, batch.bytes as usize, &mut |room| {
                in_flight.unencoded().fold(0, |at, commands| at + commands.copy_to(&mut room[at..]))
            })
        };
        if let Ok(false) = written {
            in_flight.unencoded().for_each(|commands| self.raw.write_buffer.push_all(commands));
        }
        self.in_flight.end_batch();
        self.writing = true;
        self.state.counters.batch(batch.commands);
        self.state.counters.in_flight(self.in_flight.commands());
        if written? { Poll::Ready(Ok(())) } else { self.raw.poll_flush(cx) }
    }

    /// Ready once this side has ended the connection.
    fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<LostCause> {
        match self.shutdown {
            ShutdownState::No => return Poll::Pending,
            ShutdownState::Abandoned => {}
            ShutdownState::Closing(_) if !self.in_flight.is_empty() => return Poll::Pending,
            ShutdownState::Closing(_) => {
                if let Err(error) = ready!(Pin::new(&mut self.raw.socket).poll_shutdown(cx)) {
                    debug!(%error, "shutdown failed");
                }
            }
        }
        Poll::Ready(LostCause::Closed)
    }
}

#[cfg(test)]
mod tests;
