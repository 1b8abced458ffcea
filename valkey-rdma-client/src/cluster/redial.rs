//! [`Redial`]: when the next attempt to connect to a node may begin.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::{Backoff, STABLE_AFTER};

/// Waits grow with every attempt that fails, and with every connection that ends soon after it was made: a server that ends
/// each connection at once would otherwise get thousands of them.
#[derive(Default)]
pub(super) struct Redial {
    /// Attempts and short-lived connections since the last one that was stable.
    failures: u32,
    /// Connections among these.
    short_lived: u32,
    /// No attempt begins before.
    not_before: Option<Instant>,
    /// When the last connection was made.
    born: Option<Instant>,
}

impl Redial {
    /// Attempts that failed and short-lived connections since the last one that was stable.
    pub(super) fn attempts(&self) -> u32 {
        self.failures
    }

    pub(super) fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    /// When an attempt begins that a command waits for, which fails after `patience`: early enough for that.
    pub(super) fn next_attempt(&self, backoff: Backoff, patience: Option<Duration>) -> Option<Instant> {
        let latest = patience.and_then(|patience| Instant::now().checked_add(backoff.step(patience)));
        self.not_before.into_iter().chain(self.not_before.and(latest)).min()
    }

    /// True if the next attempt may begin before, when another node was reached: not if this one ends each connection at once. Two
    /// such nodes would drive each other.
    pub(super) fn may_hurry(&self) -> bool {
        self.short_lived == 0
    }

    pub(super) fn connected(&mut self) {
        self.born = Some(Instant::now());
        self.not_before = None;
    }

    /// An attempt failed.
    pub(super) fn failed(&mut self, backoff: Backoff) {
        self.not_before = Instant::now().checked_add(backoff.wait(self.failures));
        self.failures = self.failures.saturating_add(1);
    }

    /// The connection has ended.
    pub(super) fn lost(&mut self, backoff: Backoff) {
        if self.born.is_some_and(|born| born.elapsed() > STABLE_AFTER) {
            *self = Self::default();
        } else {
            self.short_lived = self.short_lived.saturating_add(1);
            self.failed(backoff);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many waits the next one is longer than the shortest, after connections that lived for so many seconds each.
    async fn after_lives_of(lives: &[u64]) -> u32 {
        let mut redial = Redial::default();
        for seconds in lives {
            redial.connected();
            tokio::time::advance(Duration::from_secs(*seconds)).await;
            redial.lost(Backoff::default());
        }
        redial.failures
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_end_at_once_wait_longer_each_time_until_one_is_stable() {
        assert_eq!(after_lives_of(&[0, 0, 0]).await, 3);
        assert_eq!(after_lives_of(&[0, 0, 5]).await, 0);
        assert_eq!(after_lives_of(&[5, 0]).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stable_connection_is_replaced_without_a_wait() {
        let mut redial = Redial::default();
        redial.failed(Backoff::default());
        assert!(redial.not_before().is_some());
        redial.connected();
        assert_eq!(redial.not_before(), None);
        tokio::time::advance(Duration::from_secs(5)).await;
        redial.lost(Backoff::default());
        assert_eq!(redial.not_before(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_node_that_keeps_its_connections_is_tried_early() {
        let mut redial = Redial::default();
        redial.failed(Backoff::default());
        assert!(redial.may_hurry());
        redial.connected();
        redial.lost(Backoff::default());
        assert!(!redial.may_hurry(), "it ended at once");
        redial.connected();
        tokio::time::advance(Duration::from_secs(5)).await;
        redial.lost(Backoff::default());
        assert!(redial.may_hurry());
    }

    /// As on the connection of a single server, however rare attempts are without a command that waits.
    #[tokio::test(start_paused = true)]
    async fn a_command_that_waits_meets_an_attempt_before_it_fails() {
        let backoff = Backoff::default().max(Duration::from_secs(24 * 3600));
        let mut redial = Redial::default();
        let patience = Duration::from_secs(10);
        assert_eq!(redial.next_attempt(backoff, Some(patience)), None, "at once");
        for _ in 0..40 {
            redial.failed(backoff);
            let moment = redial.next_attempt(backoff, Some(patience)).expect("a wait");
            assert!(moment <= Instant::now() + patience / 2, "{:?}", moment - Instant::now());
            assert_eq!(redial.next_attempt(backoff, None), redial.not_before());
        }
    }
}
