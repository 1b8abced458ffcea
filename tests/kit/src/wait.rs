//! Waits that fail instead of hanging.

use std::thread;
use std::time::{Duration, Instant};

/// Waits until `condition` is true, which is checked about once a millisecond.
///
/// # Panics
/// After `deadline`, with `what` in the message.
pub fn wait_until(what: &str, deadline: Duration, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + deadline;
    while !condition() {
        assert!(Instant::now() < end, "{what}: not within {} s", deadline.as_secs_f64());
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_comes_true_ends_the_wait() {
        let mut checks = 0;
        wait_until("the third check", Duration::from_secs(10), || {
            checks += 1;
            checks == 3
        });
        assert_eq!(checks, 3);
    }

    #[test]
    #[should_panic(expected = "something impossible: not within 0.01 s")]
    fn a_condition_that_never_comes_true_fails_the_test() {
        wait_until("something impossible", Duration::from_millis(10), || false);
    }
}
