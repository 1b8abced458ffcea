//! Time, which the caller supplies, as this crate reads no clock; and the deadlines of a connection.

use core::ops::{Add, Sub};
use core::time::Duration;

/// A point in time on a monotonic clock. The caller chooses the clock and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(Duration);

impl Instant {
    /// Returns the time `elapsed` after the clock's origin.
    pub fn from_origin(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// Returns the duration since the clock's origin.
    pub fn since_origin(self) -> Duration {
        self.0
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Saturates, so that a very long duration can stand for "never".
    fn add(self, later: Duration) -> Instant {
        Instant(self.0.saturating_add(later))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Returns zero if `earlier` is later.
    fn sub(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The purpose of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Timer {
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
pub(crate) struct Timers {
    deadlines: [Option<Instant>; TIMERS.len()],
    earliest: Option<Instant>,
}

impl Timers {
    /// Sets a deadline.
    pub(crate) fn set(&mut self, timer: Timer, now: Instant, after: Duration) {
        self.put(timer, Some(now + after));
    }

    /// Removes a deadline.
    pub(crate) fn stop(&mut self, timer: Timer) {
        self.put(timer, None);
    }

    /// Removes all deadlines.
    pub(crate) fn stop_all(&mut self) {
        *self = Self::default();
    }

    /// Returns the earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.earliest
    }

    /// Removes one deadline that has passed and returns its timer.
    pub(crate) fn pop_expired(&mut self, now: Instant) -> Option<Timer> {
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
