//! Turning a session: what the device reports goes into the core, what the core wants goes to the device.

use std::task::Context;

use tokio::time::Instant;
use valkey_rdma_proto::{self as proto, Event, wire};

use super::end::End;
use super::port::COMPLETION_BATCH;
use super::session::Session;
use crate::device::CmEvent;
use crate::error::TransportError;

/// What the driver does after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Let other tasks run, then turn again.
    Again,
    /// Sleep until a waker or the deadline says otherwise.
    Sleep,
    /// Stop: the connection has ended.
    Stop,
}

/// How far a turn goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Until there is nothing to do.
    Quiet,
    /// Until there is something to read at the latest: whoever reads it may have an answer, and turns again after that.
    /// The queue is armed when there is none.
    Readable,
}

/// Whether a look at the completion queue found something, and may have left something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Some,
    /// There may be more.
    Many,
}

impl Session {
    /// One turn of the driver: takes what the device reports and does the work that follows, until nothing more
    /// comes or the turn has been long.
    ///
    /// No wake-up is lost, because it sleeps only after a round in which all of this is true: the queue was armed
    /// before the round; the round found no event, so that the device has our waker; and after that it took every
    /// completion. A completion from then on raises the event. The connection manager has our waker since the round
    /// that found none of its events. (A task whose budget in the runtime is used up is told `Pending` without its waker
    /// being kept, and is polled again.) A turn that stops at what is readable has not slept: the next one follows.
    pub(super) fn turn(&mut self, cx: &mut Context<'_>, until: Until) -> Next {
        self.waiters.driver(cx);
        let mut news = true;
        for _ in 0..MAX_ROUNDS {
            let event = self.take_completion_event(cx);
            let found = self.look();
            if until == Until::Readable && found != Found::Nothing && self.core.readable().is_some() {
                // The connection manager has its turn when there is nothing to read.
                self.pump();
                self.spin.handed_over(self.spin_time());
                return Next::Again;
            }
            news = news && self.take_cm_event(cx);
            if news || found != Found::Nothing || self.core.is_closed() {
                self.pump();
            }
            if self.end.is_some() {
                return Next::Stop;
            }
            if news || found == Found::Many {
                continue;
            }
            let time = self.spin_time();
            if self.spin.look_again(time, found == Found::Some) {
                self.port.counters.spins += u64::from(found == Found::Nothing);
                return Next::Again;
            }
            if self.spin.gives_way(found == Found::Some && self.core.readable().is_some()) {
                return Next::Again;
            }
            if self.port.is_armed() && !event {
                self.spin.sleep(time);
                self.port.counters.sleeps += 1;
                return Next::Sleep;
            }
            self.arm();
        }
        Next::Again
    }

    /// The deadline of [`poll_timeout`](valkey_rdma_proto::Connection::poll_timeout), which the driver will wait for.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        self.waiters.driver_deadline = self.core.poll_timeout();
        self.waiters.driver_deadline.and_then(|deadline| self.deadline_of(deadline))
    }

    /// The driver's timer has fired. If the deadline has not moved since, nothing came for that long, which may mean that
    /// an event was lost: the next turn looks, and asks for one again.
    pub(super) fn handle_timeout(&mut self) {
        let now = self.now();
        if self.core.poll_timeout().is_none_or(|deadline| deadline > now) {
            return;
        }
        self.port.forget_armed();
        self.core.handle_timeout(now);
        self.pump();
    }

    /// Takes completions that lie in the queue while the driver's wake-up is still under way. Returns whether there
    /// were any.
    pub(super) fn look_ahead(&mut self) -> bool {
        let found = self.look() != Found::Nothing;
        if found {
            self.pump();
        }
        found
    }

    /// Does all the work the core has: consecutive sends leave under one doorbell, receives in one batch.
    pub(super) fn pump(&mut self) {
        let origin = self.origin;
        let clock = || proto::Instant::from_origin(origin.elapsed());
        let mut connected = true;
        while let Some(work) = self.core.poll_work(clock) {
            connected &= self.port.prepare(work);
        }
        if let Err(error) = self.port.post() {
            self.device_failed(&error);
            connected = false;
        }
        if !connected {
            self.port.disconnect();
            // What had arrived before is still the application's.
            self.look_to_the_end();
        }
        while let Some(event) = self.core.poll_event() {
            if let Event::Closed { reason } = event {
                tracing::debug!(peer = %self.info().peer_addr, %reason, "closed");
                self.end.get_or_insert(End::Closed(reason));
            }
        }
    }

    fn take_completion_event(&mut self, cx: &mut Context<'_>) -> bool {
        match self.port.take_completion_event(cx) {
            Ok(event) => event,
            Err(error) => self.device_failed(&error),
        }
    }

    fn arm(&mut self) {
        if let Err(error) = self.port.arm() {
            self.device_failed(&error);
        }
    }

    /// Takes a batch of completions and hands them to the core.
    fn look(&mut self) -> Found {
        let (completions, outcome) = self.port.look();
        let found = match completions.len() {
            0 => Found::Nothing,
            COMPLETION_BATCH => Found::Many,
            _ => Found::Some,
        };
        // Most looks find nothing, and reading the clock is not free.
        if found != Found::Nothing {
            let now = self.now();
            for &completion in &completions {
                let mut message = [0; wire::MESSAGE_LEN];
                let len = self.port.message(&completion, &mut message);
                self.core.handle_completion(now, completion, &message[..len]);
            }
        }
        self.port.recycle(completions);
        match outcome {
            Ok(()) => found,
            Err(error) => {
                self.device_failed(&error);
                Found::Nothing
            }
        }
    }

    fn look_to_the_end(&mut self) {
        while self.look() == Found::Many {}
    }

    fn take_cm_event(&mut self, cx: &mut Context<'_>) -> bool {
        let event = match self.port.take_cm_event(cx) {
            Ok(Some(event)) => event,
            Ok(None) => return false,
            Err(error) => return self.device_failed(&error),
        };
        tracing::debug!(?event, peer = %self.info().peer_addr, "connection manager");
        match event {
            CmEvent::Established => self.core.handle_established(self.now()),
            CmEvent::Disconnected => {
                // The last replies may lie in the queue: they come first.
                self.look_to_the_end();
                self.core.handle_disconnected(self.now());
            }
            CmEvent::DeviceRemoved => {
                self.end.get_or_insert(End::DeviceRemoved);
                self.core.handle_device_failure(self.now());
            }
            // Logged above. The device repeats for a while what is not acknowledged; then it ends the connection.
            CmEvent::PortDown | CmEvent::PortUp => {}
            CmEvent::Rejected { .. } | CmEvent::Unreachable { .. } | CmEvent::ConnectError { .. } => {
                self.end = Some(End::NeverConnected(event));
                self.core.handle_disconnected(self.now());
            }
        }
        true
    }

    /// Returns `true`: there is news.
    fn device_failed(&mut self, error: &TransportError) -> bool {
        if !self.core.is_closed() {
            let told = error as &dyn std::error::Error;
            tracing::warn!(peer = %self.info().peer_addr, error = told, "the connection cannot go on");
            self.end = self.end.or_else(|| End::of_device(error));
        }
        self.core.handle_device_failure(self.now());
        true
    }
}

/// Rounds of one turn before other tasks get theirs.
const MAX_ROUNDS: usize = 16;
