//! The deadlines of a connection, by name.

use core::time::Duration;

use crate::time::Instant;

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Timer {
    /// The peer's first Register is due.
    Handshake,
    /// A keepalive is due.
    Keepalive,
    /// The peer should have been heard.
    Idle,
    /// Closing must end.
    Close,
    /// The peer has had its chance to disconnect first.
    Linger,
}

/// Every timer there is, in the order of their slots.
const TIMERS: [Timer; 5] = [Timer::Handshake, Timer::Keepalive, Timer::Idle, Timer::Close, Timer::Linger];

/// One slot per timer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Timers([Option<Instant>; TIMERS.len()]);

impl Timers {
    /// Sets a deadline.
    pub(super) fn set(&mut self, timer: Timer, now: Instant, after: Duration) {
        self.0[timer as usize] = Some(now + after);
    }

    /// Forgets a deadline.
    pub(super) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    /// Forgets all.
    pub(super) fn stop_all(&mut self) {
        *self = Self::default();
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.iter().flatten().min().copied()
    }

    /// Takes one deadline that has passed.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<Timer> {
        let expired = TIMERS
            .into_iter()
            .find(|&timer| self.0[timer as usize].is_some_and(|deadline| deadline <= now))?;
        self.stop(expired);
        Some(expired)
    }
}
