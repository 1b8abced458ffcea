//! [`Deadline`]: when a request's time is up, and [`DeadlineTimer`]: one timer for all of them.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// When a caller stops waiting, and the limit it was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) limit: Duration,
}

impl Deadline {
    /// Returns `None` if the limit exceeds what clocks can represent.
    pub(crate) fn after(limit: Duration) -> Option<Self> {
        Some(Self { at: Instant::now().checked_add(limit)?, limit })
    }
}

/// Wakes a task at the earliest of many deadlines, with one timer.
#[derive(Default)]
pub(crate) struct DeadlineTimer {
    at: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl DeadlineTimer {
    /// Makes the timer fire at this moment or before.
    pub(crate) fn arm(&mut self, at: Instant) {
        if self.fires_by(at) {
            return;
        }
        self.at = Some(at);
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(sleep_until(at))),
        }
    }

    /// True if the timer fires at this moment or before.
    pub(crate) fn fires_by(&self, at: Instant) -> bool {
        self.at.is_some_and(|earlier| earlier <= at)
    }

    /// Polls a timer that fires `interval` from now or before, and then again.
    pub(crate) fn poll_within(&mut self, interval: Duration, cx: &mut Context<'_>) {
        loop {
            if self.at.is_none() {
                self.arm(Instant::now() + interval);
            }
            if self.poll(cx).is_pending() {
                return;
            }
        }
    }

    /// Ready when it fires; then it is disarmed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.sleep {
            Some(sleep) if self.at.is_some() => {
                ready!(sleep.as_mut().poll(cx));
                self.at = None;
                Poll::Ready(())
            }
            _ => Poll::Pending,
        }
    }
}
