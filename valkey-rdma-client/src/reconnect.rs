//! [`Backoff`]: how long to wait between attempts to connect again.

use std::time::Duration;

/// A connection that has lived this long counts as stable: after its loss, the waits begin at the shortest again.
pub(crate) const STABLE_AFTER: Duration = Duration::from_secs(1);

/// Waits that grow from attempt to attempt, each cut short by chance, so that many clients of a restarted server do
/// not come back at the same moment.
///
/// The wait before attempt *n* (from 0) is drawn evenly from 0 to `min(max, first * 2^n)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), max: Duration::from_secs(5) }
    }
}

impl Backoff {
    /// The longest wait before the first attempt. Default 100 ms.
    #[must_use]
    pub fn first(mut self, wait: Duration) -> Self {
        self.first = wait;
        self
    }

    /// The longest wait of all. Default 5 s. Longer spares a server that is down, and finds it later.
    #[must_use]
    pub fn max(mut self, wait: Duration) -> Self {
        self.max = wait;
        self
    }

    /// The longest wait before an attempt, counted from 0.
    fn ceiling(&self, attempt: u32) -> Duration {
        self.first.saturating_mul(2_u32.saturating_pow(attempt)).min(self.max)
    }

    /// The wait before an attempt, counted from 0.
    pub(crate) fn wait(&self, attempt: u32) -> Duration {
        self.ceiling(attempt).mul_f64(fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let backoff = Backoff::default();
        let ceilings = [0, 1, 2, 5, 6, 40, u32::MAX].map(|attempt| backoff.ceiling(attempt).as_millis());
        assert_eq!(ceilings, [100, 200, 400, 3200, 5000, 5000, 5000]);
    }

    #[test]
    fn waits_stay_below_their_ceiling_and_differ() {
        let backoff = Backoff::default();
        let waits: Vec<_> = (0..100).map(|_| backoff.wait(3)).collect();
        assert!(waits.iter().all(|wait| *wait <= backoff.ceiling(3)));
        assert!(waits.iter().any(|wait| *wait != waits[0]));
        assert_eq!(Backoff::default().first(Duration::MAX).max(Duration::ZERO).wait(7), Duration::ZERO);
    }
}
