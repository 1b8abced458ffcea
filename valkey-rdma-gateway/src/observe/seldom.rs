//! [`Seldom`]: keeps clients from filling the log.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use valkey_rdma_transport::sync::lock;

/// Lets one event through in a time: a second, unless it is given.
#[derive(Debug)]
pub(crate) struct Seldom {
    apart: Duration,
    /// When the last one passed, and how many were held back since.
    state: Mutex<(Option<Instant>, u64)>,
}

impl Default for Seldom {
    fn default() -> Self {
        Self::every(Duration::from_secs(1))
    }
}

impl Seldom {
    pub(crate) fn every(apart: Duration) -> Self {
        Self { apart, state: Mutex::default() }
    }

    /// How many events were held back since the last one that passed. `None`: this one is held back too.
    pub(crate) fn pass(&self, now: Instant) -> Option<u64> {
        let (last, held) = &mut *lock(&self.state);
        if last.is_some_and(|last| now.saturating_duration_since(last) < self.apart) {
            *held += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_second_are_one() {
        let (seldom, begin) = (Seldom::default(), Instant::now());
        let passed = [0, 1, 999, 1000, 2500].map(|at| seldom.pass(begin + Duration::from_millis(at)));
        assert_eq!(passed, [Some(0), None, None, Some(2), Some(0)]);
    }
}
