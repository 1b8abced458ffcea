//! The named deadlines of a connection.

use core::time::Duration;

use crate::time::Instant;

/// The purpose of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Timer {
    /// The peer must have sent its first Register.
    Handshake,
    /// The next keepalive is due.
    Keepalive,
    /// Something must have arrived from the peer.
    Idle,
    /// The peer should have offered its next window.
    Stall,
    /// Closing must be complete.
    Close,
    /// The wait for the peer to disconnect first ends.
    Linger,
}

/// All timers, in the order of their slots.
const TIMERS: [Timer; 6] =
    [Timer::Handshake, Timer::Keepalive, Timer::Idle, Timer::Stall, Timer::Close, Timer::Linger];

/// One slot per timer. The earliest deadline is cached, because it is read far more often than a timer changes.
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

    /// Removes a deadline.
    pub(super) fn stop(&mut self, timer: Timer) {
        self.put(timer, None);
    }

    /// Removes all deadlines.
    pub(super) fn stop_all(&mut self) {
        *self = Self::default();
    }

    /// Returns the earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.earliest
    }

    /// Removes one deadline that has passed and returns its timer.
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
