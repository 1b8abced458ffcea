//! Time, which the caller supplies: this crate reads no clock.

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
