//! Drives a connection, so that receives are posted again and keepalives are answered even while the application does nothing.
//!
//! Four steps, in turn until nothing more comes: take [completions](ConnectionState::poll_cq), take
//! [events of the connection manager](ConnectionState::take_cm_event), handle the [deadline](ConnectionState::handle_timeout), and
//! post the [work](ConnectionState::flush_work) that the core has after that.
//!
//! Who runs them: a [`Driver`] in the background, or the task that owns a [driven](super::Stream::driven) stream, with an
//! [`OwnersDriver`].

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BufMut;
use tokio::runtime::Handle;
use tokio::time::Instant;
use valkey_rdma_proto::{self as proto, CloseReason, Event, wire};

use super::device_io::COMPLETION_BATCH;
use super::state::{ConnectionState, SharedConnection, next_due};
use crate::device::CmEvent;
use crate::error::TransportError;
use crate::stats::Info;
use crate::sync::{DeadlineTimer, keep_waker};

/// Drives until the connection has ended, or another driver has replaced this one.
pub(super) struct Driver {
    shared: SharedConnection,
    /// Identifies this driver among those that the connection has had.
    id: u64,
    timer: DeadlineTimer,
}

impl Driver {
    /// Replaces the connection's current driver, if it has one.
    pub(super) fn new(shared: SharedConnection) -> Self {
        let (id, previous) = shared.with(|connection| connection.replace_driver());
        if let Some(previous) = previous {
            previous.wake();
        }
        Self { shared, id, timer: DeadlineTimer::default() }
    }

    /// Drives the connection until it has nothing to do. Ready when there is nothing left to drive.
    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let driven = self.shared.with(|connection| {
                (connection.driver == self.id)
                    .then(|| (connection.poll_device(cx, DriveUntil::Idle), connection.deadline()))
            });
            let Some((outcome, deadline)) = driven else { return Poll::Ready(()) };
            if let DriveOutcome::Done = outcome {
                return Poll::Ready(());
            }
            if !self.wait(cx, outcome, deadline) {
                return Poll::Pending;
            }
        }
    }

    /// Registers for the deadline, and for another poll if the outcome is to yield. Returns true if the deadline has
    /// passed: it was handled, so drive again.
    fn wait(&mut self, cx: &mut Context<'_>, outcome: DriveOutcome, deadline: Option<Instant>) -> bool {
        // Deadlines first, so that a busy peer cannot keep us from noticing them.
        if deadline.is_some_and(|deadline| self.timer.poll_deadline(cx, deadline)) {
            self.shared.with(|connection| connection.handle_timeout());
            return true;
        }
        if let DriveOutcome::Yield = outcome {
            // To the end of the run queue: ready tasks, timers and sockets come first.
            cx.waker().wake_by_ref();
        }
        false
    }
}

/// The background task of a stream.
impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().drive(cx)
    }
}

impl Drop for Driver {
    /// A runtime that shuts down drops its tasks. If no other driver has replaced this one, the connection would then wait for ever.
    fn drop(&mut self) {
        self.shared.with(|connection| {
            if connection.driver == self.id {
                connection.cut(TransportError::RuntimeEnded);
            }
        });
    }
}

/// The driver of a [driven](super::Stream::driven) stream. When it is dropped, a background task drives the connection again.
pub(super) struct OwnersDriver {
    driver: Driver,
    runtime: Handle,
}

impl OwnersDriver {
    /// Replaces the background task.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(super) fn new(shared: SharedConnection) -> Self {
        Self { driver: Driver::new(shared), runtime: Handle::current() }
    }

    /// Drives the connection until it has nothing to do. When it has ended, the owner's next poll reports that.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        // The timer needs the runtime, which the caller's thread may not have.
        let _entered = self.runtime.enter();
        let _ = self.driver.drive(cx);
    }

    /// Reads, and drives while there is nothing to read. `Ready(false)` is the end.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, out: &mut dyn BufMut) -> Poll<bool> {
        loop {
            let (read, outcome, deadline) = self.driver.shared.with(|connection| {
                let (read, outcome) = connection.poll_read_driving(cx, out);
                // The deadline matters only to a task that goes to sleep.
                let deadline = if read.is_pending() { connection.deadline() } else { None };
                (read, outcome, deadline)
            });
            if read.is_ready() || !self.driver.wait(cx, outcome, deadline) {
                return read;
            }
        }
    }
}

impl Drop for OwnersDriver {
    /// Replaces its driver before that is dropped.
    fn drop(&mut self) {
        if !self.driver.shared.with(|connection| connection.close_error.is_some()) {
            self.runtime.spawn(Driver::new(self.driver.shared.clone()));
        }
    }
}

/// What the driver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DriveOutcome {
    /// Let other tasks run, then drive again.
    Yield,
    /// Sleep until a wake-up or the deadline.
    Park,
    /// Stop: the connection has ended.
    Done,
}

/// How far to drive.
#[derive(Clone, Copy, Debug)]
pub(super) enum DriveUntil {
    /// Until there is nothing to do.
    Idle,
    /// Stop as soon as data is readable, so that the reader can respond before the queue is armed. The reader flushes
    /// the work that is due.
    Readable,
}

impl ConnectionState {
    /// Takes what the device reports and does the work that follows, until nothing more comes or [`MAX_ROUNDS`] are over.
    ///
    /// No wake-up is lost, because the driver parks only after a round in which all of this is true: the queue was armed
    /// before the round; the round found no event, so the device has our waker; and after that it took every completion.
    /// Later completions raise the event. The connection manager has had our waker since the round that found none of
    /// its events. (If tokio's cooperative budget is used up, `Pending` comes without keeping the waker, and the task is
    /// polled again.) When this stops at readable data, nothing has parked, and the next call follows.
    pub(super) fn poll_device(&mut self, cx: &mut Context<'_>, until: DriveUntil) -> DriveOutcome {
        keep_waker(&mut self.wakers.driver, cx);
        let mut news = true;
        for _ in 0..MAX_ROUNDS {
            let event = match self.device.take_completion_event(cx) {
                Ok(event) => event,
                Err(error) => self.device_failed(error),
            };
            let found = self.poll_cq();
            if matches!(until, DriveUntil::Readable) && found > 0 && self.core.readable().is_some() {
                // Events of the connection manager are taken when there is nothing to read.
                self.poll_policy.on_delivered(self.poll_policy.time());
                return DriveOutcome::Yield;
            }
            news = news && self.take_cm_event(cx);
            if news || found > 0 || self.is_held_back || self.core.is_closed() {
                self.flush_work();
            }
            if self.close_error.is_some() {
                return DriveOutcome::Done;
            }
            if news || found == COMPLETION_BATCH {
                continue;
            }
            let time = self.poll_policy.time();
            if self.poll_policy.poll_again(time, found > 0) {
                self.device.counters.spins += u64::from(found == 0);
                return DriveOutcome::Yield;
            }
            if self.poll_policy.should_yield(found > 0 && self.core.readable().is_some()) {
                return DriveOutcome::Yield;
            }
            if self.device.armed && !event {
                self.poll_policy.on_park(time);
                self.device.counters.sleeps += 1;
                return DriveOutcome::Park;
            }
            if let Err(error) = self.device.arm() {
                self.device_failed(error);
            }
        }
        DriveOutcome::Yield
    }

    /// The next deadline, which the driver will wait for: that of [`poll_timeout`](valkey_rdma_proto::Connection::poll_timeout), or the
    /// next look at the send buffer.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        self.wakers.driver_deadline = next_due(&self.core, self.look);
        // One beyond the end of the clock never comes.
        self.wakers.driver_deadline.and_then(|deadline| self.epoch.checked_add(deadline.since_origin()))
    }

    /// The driver's timer has fired. If the core's deadline has not moved since, nothing came for that long, which may mean that
    /// an event was lost: poll the queue and arm it again.
    pub(super) fn handle_timeout(&mut self) {
        let now = self.now();
        self.look_at_send_buffer(now);
        if self.core.poll_timeout().is_none_or(|deadline| deadline > now) {
            return;
        }
        // Arming once more is harmless.
        self.device.armed = false;
        // A queue pair in error state may report nothing.
        if !self.core.is_closed()
            && let Err(error) = self.device.check()
        {
            self.device_failed(error);
        }
        self.core.handle_timeout(now);
        self.flush_work();
    }

    /// Does all the work the core has: consecutive sends leave under one doorbell, receives in one batch.
    pub(super) fn flush_work(&mut self) {
        let epoch = self.epoch;
        let clock = || proto::Instant::from_origin(epoch.elapsed());
        let mut connected = true;
        self.is_held_back = false;
        while let Some(work) = self.core.poll_work(clock) {
            connected &= self.device.queue(work);
        }
        if let Err(error) = self.device.post_queued() {
            self.device_failed(error);
            connected = false;
        }
        if !connected {
            self.device.disconnect();
            // What had arrived before can still be read.
            self.drain_cq();
        }
        while let Some(event) = self.core.poll_event() {
            if let Event::Closed { reason } = event {
                tracing::debug!(peer = %self.info().peer_addr, %reason, "closed");
                self.close_error.get_or_insert(match reason {
                    CloseReason::Protocol(error) => TransportError::Protocol(error),
                    reason => TransportError::Lost(reason),
                });
            }
        }
    }

    /// Takes a batch of completions and hands them to the core. [`flush_work`](Self::flush_work) does the work that follows.
    /// Returns how many there were; fewer than [`COMPLETION_BATCH`] mean that none are left.
    pub(super) fn poll_cq(&mut self) -> usize {
        let (completions, outcome) = self.device.poll_cq();
        let found = completions.len();
        // Mostly nothing is found, and reading the clock is not free.
        if found > 0 {
            let now = self.now();
            for &completion in &completions {
                let mut message = [0; wire::MESSAGE_LEN];
                let len = self.device.read_message(&completion, &mut message);
                self.core.handle_completion(now, completion, &message[..len]);
            }
        }
        self.device.recycle(completions);
        match outcome {
            Ok(()) => found,
            Err(error) => {
                self.device_failed(error);
                0
            }
        }
    }

    fn drain_cq(&mut self) {
        while self.poll_cq() == COMPLETION_BATCH {}
    }

    fn take_cm_event(&mut self, cx: &mut Context<'_>) -> bool {
        let event = match self.device.take_cm_event(cx) {
            Ok(Some(event)) => event,
            Ok(None) => return false,
            Err(error) => return self.device_failed(error),
        };
        tracing::debug!(?event, peer = %self.info().peer_addr, "connection manager");
        match event {
            CmEvent::Established => self.core.handle_established(self.now()),
            CmEvent::Disconnected => {
                // The last replies may lie in the queue: they come first.
                self.drain_cq();
                self.core.handle_disconnected(self.now());
            }
            CmEvent::DeviceRemoved => {
                self.close_error.get_or_insert(TransportError::DeviceRemoved);
                self.core.handle_device_failure(self.now());
            }
            // Logged above. The device repeats for a while what is not acknowledged; then it ends the connection.
            CmEvent::PortDown | CmEvent::PortUp => {}
            CmEvent::Rejected { .. } | CmEvent::Unreachable { .. } | CmEvent::ConnectError { .. } => {
                let Info { peer_addr, device, .. } = self.info();
                self.close_error = Some(TransportError::never_connected(event, peer_addr, device.kind));
                self.core.handle_disconnected(self.now());
            }
        }
        true
    }

    /// Ends the connection. Returns `true`, as an event does.
    fn device_failed(&mut self, error: TransportError) -> bool {
        if !self.core.is_closed() {
            let source = &error as &dyn std::error::Error;
            tracing::warn!(peer = %self.info().peer_addr, error = source, "the connection cannot go on");
            self.close_error.get_or_insert(error);
        }
        self.core.handle_device_failure(self.now());
        true
    }
}

/// Rounds of one [`poll_device`](ConnectionState::poll_device) before other tasks run.
const MAX_ROUNDS: usize = 16;
