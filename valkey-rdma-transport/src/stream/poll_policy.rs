//! When to look at the completion queue again, and when to arm it and sleep.
//!
//! The rule of adaptive polling is that of halt polling in KVM: time spent looking is worth it if what was slept for
//! came soon, and wasted if it did not.
//!
//! Arming is a system call. On a current-thread runtime the tasks just woken run first, so that their replies are
//! posted before the queue is armed. (`block_on`'s main future runs last, so three extra empty polls are allowed.) On
//! a runtime of several threads other workers may run those tasks, and waking a worker is a system call too.

use std::time::{Duration, Instant};

use crate::polling::Polling;

/// The decision, and what it has learnt. Gets every poll and every sleep; time counts from any fixed origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct PollPolicy {
    mode: Polling,
    /// Time 0 of its clock. Not tokio's, which stands still while a test pauses it: busy polling would never end.
    epoch: Instant,
    /// Longest budget.
    limit: Duration,
    /// How long to look on after the last completion.
    budget: Duration,
    /// When the last completion was found.
    found_at: Duration,
    /// Since when nothing was found but by sleeping.
    asleep_since: Option<Duration>,
    /// Whether all tasks share one thread.
    one_thread: bool,
    /// How often to yield before the queue is armed.
    yields_before_arm: u8,
}

impl PollPolicy {
    /// `one_thread`: whether all tasks share the thread.
    pub(super) fn new(mode: Polling, limit: Duration, one_thread: bool) -> Self {
        Self {
            mode,
            epoch: Instant::now(),
            limit,
            budget: Duration::ZERO,
            found_at: Duration::ZERO,
            asleep_since: None,
            one_thread,
            yields_before_arm: 0,
        }
    }

    /// The time to pass to the other functions. Zero where it does not matter: reading a clock costs as much as a look.
    pub(super) fn time(&self) -> Duration {
        if let Polling::Adaptive = self.mode { self.epoch.elapsed() } else { Duration::ZERO }
    }

    /// The queue was looked at and is empty now; `found`: it was not before. Returns whether to look again, rather
    /// than to arm it and sleep.
    pub(super) fn poll_again(&mut self, now: Duration, found: bool) -> bool {
        match self.mode {
            Polling::Event => false,
            Polling::Busy => true,
            Polling::Adaptive => {
                if found {
                    if let Some(since) = self.asleep_since.take() {
                        self.learn(now.saturating_sub(since));
                    }
                    self.found_at = now;
                }
                now.saturating_sub(self.found_at) < self.budget
            }
        }
    }

    /// Data was found and goes to the task that drives the connection, at once. Counts as a poll that found
    /// something; the decisions are for its next poll.
    pub(super) fn on_delivered(&mut self, now: Duration) {
        self.poll_again(now, true);
        self.should_yield(true);
    }

    /// Something was sent: the answer to what was found, if there was to be one.
    pub(super) fn on_send(&mut self) {
        self.yields_before_arm = 0;
    }

    /// Called when [`poll_again`](Self::poll_again) said no. Returns whether the tasks that were just woken run
    /// before the queue is armed.
    pub(super) fn should_yield(&mut self, found: bool) -> bool {
        if found && self.one_thread {
            self.yields_before_arm = MAX_YIELDS;
        }
        let more = self.yields_before_arm > 0;
        self.yields_before_arm = self.yields_before_arm.saturating_sub(1);
        more
    }

    /// The queue is armed and empty.
    pub(super) fn on_park(&mut self, now: Duration) {
        self.asleep_since.get_or_insert(now);
    }

    /// How long it would look now.
    pub(super) fn budget(&self) -> Duration {
        self.budget
    }

    fn learn(&mut self, slept: Duration) {
        self.budget = if slept <= self.limit {
            (self.budget * 2).max(SHORTEST).min(self.limit)
        } else if self.budget > SHORTEST {
            self.budget / 2
        } else {
            Duration::ZERO
        };
    }
}

/// The most turns between what was found and arming: a client library's driver, its caller, and the driver again.
const MAX_YIELDS: u8 = 3;
/// Shortest budget that is not zero, about a round trip on hardware.
const SHORTEST: Duration = Duration::from_micros(5);

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// Sleeps at `now`, then finds something after `slept`.
    fn sleep_for(policy: &mut PollPolicy, now: &mut Duration, slept: Duration) -> bool {
        policy.on_park(*now);
        *now += slept;
        policy.poll_again(*now, true)
    }

    #[test]
    fn completions_that_come_soon_are_worth_looking_for() {
        let (mut policy, mut now) = (PollPolicy::new(Polling::Adaptive, us(50), true), us(1000));
        assert!(!policy.poll_again(now, true), "nothing learnt yet");
        assert!(sleep_for(&mut policy, &mut now, us(10)));
        assert_eq!(policy.budget(), us(5));
        assert!(policy.poll_again(now + us(4), false));
        assert!(!policy.poll_again(now + us(5), false), "the budget is used up");
        let budgets = [10, 20, 40, 50, 50].map(|expected| {
            sleep_for(&mut policy, &mut now, us(50));
            (policy.budget(), us(expected))
        });
        assert!(budgets.iter().all(|(budget, expected)| budget == expected), "{budgets:?}");
    }

    #[test]
    fn completions_that_come_late_are_slept_for() {
        let (mut policy, mut now) = (PollPolicy::new(Polling::Adaptive, us(50), true), us(0));
        for _ in 0..10 {
            sleep_for(&mut policy, &mut now, us(1));
        }
        let mut budgets = Vec::new();
        while sleep_for(&mut policy, &mut now, us(51)) {
            budgets.push(policy.budget());
        }
        assert_eq!(budgets, [us(25), us(12) + us(1) / 2, us(6) + us(1) / 4, us(3) + us(1) / 8]);
        assert_eq!(policy.budget(), Duration::ZERO);
    }

    #[test]
    fn completions_found_while_looking_change_nothing_but_the_time_looked_on() {
        let (mut policy, mut now) = (PollPolicy::new(Polling::Adaptive, us(50), true), us(0));
        sleep_for(&mut policy, &mut now, us(1));
        for _ in 0..100 {
            now += us(4);
            assert!(policy.poll_again(now, true));
        }
        assert_eq!(policy.budget(), us(5));
    }

    #[test]
    fn waking_up_for_nothing_teaches_nothing() {
        let (mut policy, mut now) = (PollPolicy::new(Polling::Adaptive, us(50), true), us(0));
        sleep_for(&mut policy, &mut now, us(1));
        policy.on_park(now);
        assert!(!policy.poll_again(now + us(30), false));
        policy.on_park(now + us(30));
        assert!(!policy.poll_again(now + us(60), true), "slept for 60 us, although woken half way");
        assert_eq!(policy.budget(), Duration::ZERO);
    }

    #[test]
    fn the_other_modes_do_not_ask_for_the_time() {
        let (mut event, mut busy) =
            (PollPolicy::new(Polling::Event, us(50), true), PollPolicy::new(Polling::Busy, us(50), true));
        assert_eq!((event.time(), busy.time()), (us(0), us(0)));
        for found in [true, false] {
            assert!(!event.poll_again(us(0), found) && busy.poll_again(us(0), found));
        }
    }

    #[test]
    fn what_is_handed_over_teaches_and_gives_way_as_what_is_found() {
        let (mut policy, mut now) = (PollPolicy::new(Polling::Adaptive, us(50), true), us(1000));
        policy.on_park(now);
        now += us(10);
        policy.on_delivered(now);
        assert_eq!(policy.budget(), us(5));
        assert!(policy.poll_again(now + us(4), false));
        assert!(policy.should_yield(false));
        policy.on_send();
        assert!(!policy.should_yield(false));
    }

    #[test]
    fn woken_tasks_run_before_a_queue_is_armed() {
        let mut policy = PollPolicy::new(Polling::Event, us(50), true);
        assert!(!policy.should_yield(false), "no task was woken");
        let turns = [true, false, false, false].map(|found| policy.should_yield(found));
        assert_eq!(turns, [true, true, true, false]);

        assert!(policy.should_yield(true));
        policy.on_send();
        assert!(!policy.should_yield(false), "the answer has left: no task waits");

        let mut among_threads = PollPolicy::new(Polling::Event, us(50), false);
        assert!(!among_threads.should_yield(true));
    }
}
