//! Time as the core sees it: told by the caller, never read.

use core::ops::{Add, Sub};
use core::time::Duration;

/// A moment on a monotonic clock of the caller's choice, counted from an origin of the caller's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(Duration);

impl Instant {
    /// The moment `elapsed` after the clock's origin.
    pub fn from_origin(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How long after the clock's origin this is.
    pub fn since_origin(self) -> Duration {
        self.0
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Saturates at the end of time, so that "never" may be written as a very long duration.
    fn add(self, later: Duration) -> Instant {
        Instant(self.0.saturating_add(later))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Zero if `earlier` is in fact later.
    fn sub(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
