//! What a sweep found: each rate that was tried, and the best.

use std::time::Duration;

use super::TestResult;

/// One rate.
#[derive(Debug, Clone)]
pub(crate) struct SweepStep {
    /// Intended requests per second.
    pub(crate) rate: f64,
    /// What was measured.
    pub(crate) result: TestResult,
    /// Whether the server kept up, fast enough.
    pub(crate) good: bool,
}

/// What was found.
#[derive(Debug, Clone)]
pub(crate) struct Sweep {
    /// The test's title.
    pub(crate) title: String,
    /// Replies per second with every connection busy: the closed loop.
    pub(crate) closed: TestResult,
    /// All rates that were tried, in that order.
    pub(crate) steps: Vec<SweepStep>,
    /// The highest p99 that was good enough.
    pub(crate) limit: Option<Duration>,
    /// Whether that was the user's target; else it follows from the lightest load.
    pub(crate) targeted: bool,
    /// Whether the user ended it before all rates were tried.
    pub(crate) interrupted: bool,
}

impl Sweep {
    /// Whether a higher rate than the best may be good, because none was tried, or not all that would have been.
    pub(crate) fn is_open_ended(&self) -> bool {
        self.interrupted || self.steps.iter().all(|step| step.good)
    }

    /// The highest rate that was good.
    pub(crate) fn best(&self) -> Option<&SweepStep> {
        self.steps.iter().filter(|step| step.good).max_by(|one, other| one.rate.total_cmp(&other.rate))
    }
}
