//! From the connect request to the moment at which data can flow (area H).

use super::{Connection, Event, State};
use crate::config::Role;
use crate::time::{Instant, Timer};

impl Connection {
    /// Input: this side accepted the peer's connect request. A server starts the handshake deadline here, because the
    /// device may never report a client that has gone in the meantime (clause H-4).
    ///
    /// A client has no deadline here, because giving up half way harms a server (clause H-6).
    pub fn handle_accepted(&mut self, now: Instant) {
        self.now = now;
        if (self.role, self.state) == (Role::Server, State::Connecting) {
            self.timers.set(Timer::Handshake, now, self.config.handshake_timeout);
        }
    }

    /// Input: the queue pair is connected. Offers our memory to the peer (clause H-2), and asks for the features that this
    /// side wants (clause F-5).
    pub fn handle_established(&mut self, now: Instant) {
        self.now = now;
        match self.state {
            State::Connecting => self.state = State::Open,
            State::Abandoned => return self.handle_late_established(),
            _ => return,
        }
        let memory = self.rx.register_first();
        self.send_register(memory);
        self.ask_for_features();
        self.timers.set(Timer::Handshake, now, self.config.handshake_timeout);
        // The peer's Register may have arrived before this event.
        self.complete_handshake();
        if let Some(period) = self.keepalive_period() {
            self.timers.set(Timer::Keepalive, now, period);
        }
        self.reset_idle_timer();
    }

    /// Reports that data can flow, if what arrived just now was the last that was missing.
    pub(super) fn complete_handshake(&mut self) {
        if self.is_connected() {
            self.timers.stop(Timer::Handshake);
            self.events.push_back(Event::Connected);
        }
    }

    /// The application has closed before; the bytes it wrote are delivered before the connection ends.
    fn handle_late_established(&mut self) {
        self.start_closing();
        if !self.is_closed() {
            let memory = self.rx.register_first();
            self.send_register(memory);
        }
    }
}
