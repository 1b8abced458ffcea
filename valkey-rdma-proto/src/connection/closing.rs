//! How a connection ends, and what becomes of its bytes (area X).

use super::timers::Timer;
use super::{Connection, DeliveryReport, Event, State, Work};
use crate::error::CloseReason;
use crate::time::Instant;

impl Connection {
    /// Closes in order: delivers what was committed, waits for its acknowledgement, then disconnects (clause
    /// Repeated calls do nothing.
    pub fn close(&mut self, now: Instant) {
        self.now = now;
        match self.state {
            State::Connecting => self.state = State::Abandoned,
            State::Open => self.start_closing(),
            State::Abandoned | State::Closing | State::Lingering | State::Disconnecting | State::Closed => {}
        }
    }

    /// Begins to close. Bytes that wait for the peer's first Register are worth waiting for it; without any there
    /// is nothing to deliver.
    pub(super) fn start_closing(&mut self) {
        if !self.tx.is_registered() && self.send_buffer.unposted().len == 0 {
            return self.end_here();
        }
        self.state = State::Closing;
        self.timers.stop_all();
        self.timers.set(Timer::Close, self.now, self.config.close_timeout);
    }

    /// What became of the bytes committed so far. Final once the connection is closed and every completion was
    /// handed over.
    pub fn delivery_report(&self) -> DeliveryReport {
        self.send_buffer.delivery_report()
    }

    /// Once everything is posted: makes sure of a last completion, waits for it, lingers, disconnects.
    pub(super) fn poll_closing(&mut self, clock: &dyn Fn() -> Instant) -> Option<Work> {
        if self.state != State::Closing || self.send_buffer.unposted().len > 0 || !self.outbox.is_empty() {
            return None;
        }
        if self.queue.has_unsignalled_tail() {
            return self.poll_fence();
        }
        if !self.queue.is_idle() {
            return None;
        }
        self.timers.stop(Timer::Close);
        if self.config.linger.is_zero() {
            self.end_here();
            return self.next_work(clock);
        }
        self.state = State::Lingering;
        self.now = clock();
        self.timers.set(Timer::Linger, self.now, self.config.linger);
        None
    }

    /// Ends on this side's own account.
    pub(super) fn end_here(&mut self) {
        let DeliveryReport { unknown, unsent, .. } = self.delivery_report();
        self.end(match unknown + unsent {
            0 => CloseReason::Local,
            bytes => CloseReason::LocalUnfinished { bytes },
        });
    }

    pub(super) fn end(&mut self, reason: CloseReason) {
        if matches!(reason, CloseReason::Protocol(_)) {
            // The peer's stream has shifted: what still lies in the queue is not to be trusted.
            self.rx.close();
        }
        if self.is_closed() {
            return;
        }
        self.state = State::Disconnecting;
        self.timers.stop_all();
        self.events.push_back(Event::Closed { reason });
    }
}
