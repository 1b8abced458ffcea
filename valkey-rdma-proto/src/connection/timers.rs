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
    /// The peer should have offered its next window.
    Stall,
    /// Closing must end.
    Close,
    /// The peer has had its chance to disconnect first.
    Linger,
}

/// Every timer there is, in the order of their slots.
const TIMERS: [Timer; 6] =
    [Timer::Handshake, Timer::Keepalive, Timer::Idle, Timer::Stall, Timer::Close, Timer::Linger];

/// One slot per timer. Asked for the earliest far more often than one of them changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Timers {
    deadlines: [Option<Instant>; TIMERS.len()],
    earliest: Option<Instant>,
}

impl Timers {
    /// Sets a deadline.
    pub(super) fn set(&mut self, timer: Timer, now: Instant, after: Duration) {
        self.put(timer, Some(now + after));
    }

    /// Forgets a deadline.
    pub(super) fn stop(&mut self, timer: Timer) {
        self.put(timer, None);
    }

    /// Forgets all.
    pub(super) fn stop_all(&mut self) {
        *self = Self::default();
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.earliest
    }

    /// Takes one deadline that has passed.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<Timer> {
        let expired = TIMERS
            .into_iter()
            .find(|&timer| self.deadlines[timer as usize].is_some_and(|deadline| deadline <= now))?;
        self.stop(expired);
        Some(expired)
    }

    fn put(&mut self, timer: Timer, deadline: Option<Instant>) {
        self.deadlines[timer as usize] = deadline;
        self.earliest = self.deadlines.iter().flatten().min().copied();
    }
}
