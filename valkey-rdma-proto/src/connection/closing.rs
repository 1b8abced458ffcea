//! How a connection ends, and what happens to its bytes (area X).

use super::{Connection, DeliveryReport, Event, State, Work};
use crate::error::CloseReason;
use crate::time::{Instant, Timer};

impl Connection {
    /// Closes in order: delivers the committed bytes and the [transfers](Self::transfer), waits for their acknowledgement, then disconnects (clause X-1).
    /// Repeated calls do nothing.
    pub fn close(&mut self, now: Instant) {
        self.now = now;
        match self.state {
            State::Connecting => self.state = State::Abandoned,
            State::Open => self.start_closing(),
            State::Abandoned | State::Closing | State::Lingering | State::Disconnecting | State::Closed => {}
        }
    }

    /// Whether the peer has time to send its last bytes after [`close`](Self::close).
    pub fn lingers(&self) -> bool {
        !self.config.linger.is_zero()
    }

    /// Begins to close. If bytes wait for the peer's first Register, closing waits for it too; without such bytes there
    /// is nothing to deliver.
    pub(super) fn start_closing(&mut self) {
        let is_posted = self.send_buffer.unposted().len == 0 && self.transfers.is_posted();
        if !self.tx.is_registered() && is_posted {
            return self.end_here();
        }
        self.state = State::Closing;
        self.timers.stop_all();
        self.timers.set(Timer::Close, self.now, self.config.close_timeout);
    }

    /// Returns what happened to the bytes committed so far. Final once the connection has ended and every completion was
    /// handed over.
    pub fn delivery_report(&self) -> DeliveryReport {
        self.send_buffer.delivery_report()
    }

    /// Once everything is posted: requests a last completion, waits for it, lingers, disconnects.
    pub(super) fn poll_closing(&mut self, clock: &dyn Fn() -> Instant) -> Option<Work> {
        let unposted = self.send_buffer.unposted().len > 0 || !self.transfers.is_posted();
        if self.state != State::Closing || unposted || !self.outbox.is_empty() {
            return None;
        }
        if self.queue.has_unsignalled_tail() {
            return self.poll_fence();
        }
        if !self.queue.is_idle() {
            return None;
        }
        self.timers.stop(Timer::Close);
        if !self.lingers() {
            self.end_here();
            return self.next_work(clock);
        }
        self.state = State::Lingering;
        self.now = clock();
        self.timers.set(Timer::Linger, self.now, self.config.linger);
        None
    }

    /// Ends the connection from this side.
    pub(super) fn end_here(&mut self) {
        let DeliveryReport { unknown, unsent, .. } = self.delivery_report();
        self.end(match unknown + unsent + self.transfers.unfinished() {
            0 => CloseReason::Local,
            bytes => CloseReason::LocalUnfinished { bytes },
        });
    }

    pub(super) fn end(&mut self, reason: CloseReason) {
        if matches!(reason, CloseReason::Protocol(_)) {
            // The peer's stream has shifted: completions that follow must not be trusted.
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
