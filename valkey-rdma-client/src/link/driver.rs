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
//! caller that finds nothing in flight [sends](Driver::send_inline) with the same waker, without waking that task.
//!
//! After several replies, the task runs again when their callers have run, so that their next commands leave together.
//! When many replies arrive together, half of them are delivered first. Their callers then send the next commands while the
//! other half is delivered. Otherwise client and server would take turns. On a runtime of several threads the callers of a half
//! are woken in [`WakeTogether`], which wakes one other thread at most.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::AsyncWrite;
use tokio::runtime::RuntimeFlavor;
use tokio::time::Instant;
use tracing::debug;

use super::in_flight::InFlight;
use super::queue::{Awake, Ending, Sleep, SubmitQueue};
use super::request::Request;
use super::state::MultiplexerState;
use super::wake_together::WakeTogether;
use crate::error::LostCause;
use crate::link::{Connector, RawConnection};
use valkey_rdma_transport::sync::DeadlineTimer;

mod transfer;

use transfer::Read;

/// The most batches in flight before smaller ones are held back. With one, the connection would idle for a round trip
/// after each batch. With two, one side still waits whenever the other is slow to wake up. Four gained up to 20 % over
/// two, most on multi-threaded runtimes; more gained nothing.
pub(crate) const MAX_BATCHES_IN_FLIGHT: usize = 4;
/// The most commands in flight.
const MAX_IN_FLIGHT: usize = 8 * 1024;
/// Reads per poll, after which the task yields.
const READS_PER_TURN: usize = 32;
/// How long a task that computes on the same worker may delay a driver that yields. Then another worker polls the driver.
const MAX_YIELD: Duration = Duration::from_millis(1);

/// Owns a connection and the requests that wait to be sent on it.
pub(crate) struct Driver {
    raw: RawConnection,
    queue: Arc<SubmitQueue<Request>>,
    in_flight: InFlight,
    /// Callers whose reply has come, about to be woken. Kept for its memory.
    callers: Vec<Waker>,
    /// Wakes callers on a runtime of several threads.
    together: WakeTogether,
    /// True while a batch is being written; no other batch is begun meanwhile.
    writing: bool,
    /// A write error found on a caller's task. The connection task then ends the connection.
    write_error: Option<io::Error>,
    /// True if received replies may remain undelivered.
    has_buffered_replies: bool,
    /// True on a current-thread runtime: yield after delivering replies, so that callers can send before the next
    /// read.
    one_thread: bool,
    /// On a current-thread runtime, over a device: the last poll delivered a reply and then stopped, so that its caller runs and sends the
    /// next command. Only then is the device asked again, by this poll.
    yielded_to_caller: bool,
    /// Why the queue has ended: no request comes any more.
    ending: Option<Ending>,
    /// Batches sent and replies received, to recognise polls that did nothing.
    progress: u64,
    timer: DeadlineTimer,
    /// True if deadlines have passed. The requests fail once every reply that has arrived is delivered.
    overdue: bool,
    /// Fires when `close` gives up waiting for replies.
    close_timer: DeadlineTimer,
    /// Fires if a driver that has yielded is not polled for [`MAX_YIELD`].
    yield_timer: DeadlineTimer,
    /// True if the connection must end because the primary is elsewhere.
    given_up: bool,
    /// Wakes the connection task.
    task: Waker,
    state: Arc<MultiplexerState>,
    /// Makes the next connection, on which requests may be sent again. `None`: there will be no other.
    connector: Option<Arc<Connector>>,
}

impl Driver {
    pub(crate) fn new(
        mut raw: RawConnection,
        queue: Arc<SubmitQueue<Request>>,
        state: Arc<MultiplexerState>,
        connector: Option<Arc<Connector>>,
    ) -> Self {
        queue.end_outage();
        raw.drive_inline();
        let one_thread = raw.runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        Self {
            raw,
            queue,
            in_flight: InFlight::default(),
            callers: Vec::new(),
            together: WakeTogether::new(),
            writing: false,
            write_error: None,
            has_buffered_replies: false,
            one_thread,
            yielded_to_caller: false,
            ending: None,
            progress: 0,
            timer: DeadlineTimer::default(),
            overdue: false,
            close_timer: DeadlineTimer::default(),
            yield_timer: DeadlineTimer::default(),
            given_up: false,
            task: Waker::noop().clone(),
            state,
            connector,
        }
    }

    /// Moves bytes both ways, on the connection task. Ready once the connection has ended. Requests that may continue
    /// on another connection are then in the queue, and every other one has failed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Arc<LostCause>> {
        if !self.task.will_wake(cx.waker()) {
            self.task.clone_from(cx.waker());
            // `close` wakes it from now on, also before it first sleeps.
            self.queue.register_waker(cx.waker());
        }
        let before = self.progress;
        let polled = if self.given_up { Poll::Ready(LostCause::Moved) } else { self.poll_connection(cx) };
        self.state.counters.driver_poll(self.progress != before);
        let cause = ready!(polled);
        Poll::Ready(self.end(cause))
    }

    /// Ends the connection at the next poll.
    pub(crate) fn give_up(&mut self) {
        self.given_up = true;
        self.task.wake_by_ref();
    }

    /// Moves bytes both ways until neither way can progress. Ready once the connection is at its end.
    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<LostCause> {
        if self.must_close_now(cx) {
            debug!("closed with {} commands unanswered", self.in_flight.commands());
            return Poll::Ready(LostCause::Closed);
        }
        if !self.one_thread {
            // If something else has woken the task, the callers have waited long enough.
            self.together.wake();
            // The callers that are ready now push too: their requests leave together.
            if self.queue.take_woken_by_push() {
                self.yield_now(cx);
                return Poll::Pending;
            }
        } else if std::mem::take(&mut self.yielded_to_caller) && self.in_flight.is_empty() {
            // The caller has not run yet: it is the main future, which tokio polls when no task is ready.
            let _pending = pin!(tokio::task::yield_now()).poll(cx);
            return Poll::Pending;
        }
        let was_overdue = self.overdue;
        let (mut drained, mut deferred) = (false, false);
        for _ in 0..READS_PER_TURN {
            if let Err(error) = self.write_batches(cx) {
                return Poll::Ready(self.read_final_error(cx, error));
            }
            if let Poll::Ready(cause) = self.poll_stopped(cx) {
                return Poll::Ready(cause);
            }
            match self.poll_read(cx) {
                // To ask the device again costs more than a reply: the caller sends its next command before that.
                Ok(Read::Delivered) if self.one_thread && self.raw.socket.is_driven() => {
                    self.yielded_to_caller = self.sleep_with_timer(cx);
                    break;
                }
                Ok(Read::Delivered) => {}
                Ok(Read::Drained) => {
                    if self.sleep_with_timer(cx) {
                        drained = true;
                        break;
                    }
                }
                Ok(Read::Yield) => break,
                Ok(Read::Deferred) => {
                    deferred = true;
                    break;
                }
                Err(cause) => {
                    // Our own shutdown ends the reading too.
                    let ours = self.ending == Some(Ending::Closing) && matches!(cause, LostCause::PeerClosed);
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
        } else if deferred {
            // The callers' wake-ups include this task's.
            self.poll_yield_timer(cx);
        } else if !drained {
            self.yield_now(cx);
        }
        Poll::Pending
    }

    /// Polls again once callers have run.
    fn yield_now(&mut self, cx: &mut Context<'_>) {
        if self.one_thread {
            cx.waker().wake_by_ref();
        } else {
            // Deferred until this worker has nothing else to run. A plain wake-up would make another worker take this task,
            // before the callers that were just woken.
            let _pending = pin!(tokio::task::yield_now()).poll(cx);
            self.poll_yield_timer(cx);
        }
    }

    /// Lets the yield timer wake the task, [`MAX_YIELD`] from now or before.
    fn poll_yield_timer(&mut self, cx: &mut Context<'_>) {
        loop {
            self.yield_timer.arm(Instant::now() + MAX_YIELD);
            if self.yield_timer.poll(cx).is_pending() {
                return;
            }
        }
    }

    /// As [`sleep`](Self::sleep), and sets the timer. Returns false if there is something to do instead.
    fn sleep_with_timer(&mut self, cx: &Context<'_>) -> bool {
        let slept = self.sleep(cx);
        slept.iter().flatten().for_each(|at| self.timer.arm(*at));
        slept.is_ok()
    }

    /// Sleeps until a reply arrives or a caller pushes a request that can be sent. Returns when the timer must fire.
    fn sleep(&self, cx: &Context<'_>) -> Result<Option<Instant>, Awake> {
        let is_outdated = self.raw.is_outdated();
        if is_outdated && self.is_answered() {
            return Err(Awake);
        }
        let sleep = match self.in_flight.batches() {
            _ if self.writing || is_outdated => Sleep::Blocked,
            _ if self.in_flight.commands() >= MAX_IN_FLIGHT => Sleep::Blocked,
            0 => Sleep::Idle,
            batches if batches < MAX_BATCHES_IN_FLIGHT => Sleep::Listening,
            _ => Sleep::Holding,
        };
        self.queue.sleep(sleep, cx.waker())
    }

    /// True if all that was taken from the queue is written and answered.
    fn is_answered(&self) -> bool {
        self.in_flight.is_empty() && !self.writing
    }

    /// True if the deadline of `close` has passed.
    fn must_close_now(&mut self, cx: &mut Context<'_>) -> bool {
        let deadline = self.state.closing.get().copied().flatten();
        deadline.is_some_and(|deadline| self.close_timer.poll_deadline(cx, deadline))
    }

    /// Ready once this side has ended the connection.
    fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<LostCause> {
        // While a batch is being written, nothing is taken from the queue, which would report its end.
        if self.writing && self.queue.ending() == Some(Ending::Abandoned) {
            self.ending = Some(Ending::Abandoned);
        }
        match self.ending {
            None if self.is_answered() && self.raw.is_outdated() => return Poll::Ready(LostCause::Moved),
            None => return Poll::Pending,
            Some(Ending::Abandoned) => {}
            Some(Ending::Closing) if !self.in_flight.is_empty() => return Poll::Pending,
            Some(Ending::Closing) => {
                if let Err(error) = ready!(Pin::new(&mut self.raw.socket).poll_shutdown(cx)) {
                    debug!(%error, "shutdown failed");
                }
            }
        }
        Poll::Ready(LostCause::Closed)
    }
}

impl Drop for Driver {
    /// After a panic, callers whose replies have come may not have been woken.
    fn drop(&mut self) {
        self.callers.drain(..).for_each(Waker::wake);
        self.together.wake();
    }
}

#[cfg(test)]
mod tests;
