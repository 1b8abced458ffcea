//! [`Seldom`]: keeps clients from filling the log.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::inbox::lock;

/// Lets one event of a second through.
#[derive(Default)]
pub(crate) struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Seldom {
    /// How many events were held back since the last one that passed. `None`: this one is held back too.
    pub(crate) fn pass(&self, now: Instant) -> Option<u64> {
        let (last, held) = &mut *lock(&self.0);
        if last.is_some_and(|last| now.saturating_duration_since(last) < APART) {
            *held += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(held))
    }
}

const APART: Duration = Duration::from_secs(1);

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
