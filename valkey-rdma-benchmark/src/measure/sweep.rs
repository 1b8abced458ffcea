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
    /// What that says of the rate.
    pub(crate) verdict: Verdict,
}

impl SweepStep {
    /// Whether the server sustains the rate.
    pub(crate) fn is_good(&self) -> bool {
        self.verdict == Verdict::Good
    }
}

/// Whether a server sustains a rate, or the first reason why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It does.
    Good,
    /// Replies were wrong or missing, whatever the rate.
    Errors,
    /// It was behind at the end.
    Behind,
    /// The p99 is above the limit.
    P99,
}

impl Verdict {
    /// What `result` says of its rate, if requests were sent for the time `each`, and the p99 may be `limit`.
    pub(crate) fn of(result: &TestResult, each: Duration, limit: Duration) -> Verdict {
        // All requests that were due have been sent, so the time they took shows whether the server kept up. The rate
        // cannot show it, because the number of random arrivals varies.
        let kept_up = result.elapsed.mul_f64(1.0 - Sweep::MOST_BEHIND) <= each;
        if !result.is_right_or_late() {
            Verdict::Errors
        } else if !result.is_right() || !kept_up {
            Verdict::Behind
        } else if result.latencies().quantile(0.99) > limit {
            Verdict::P99
        } else {
            Verdict::Good
        }
    }

    /// In a word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Errors => "errors",
            Verdict::Behind => "behind",
            Verdict::P99 => "p99",
        }
    }
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
    /// A server keeps up if its last reply is late by this share of the whole time at most.
    pub(crate) const MOST_BEHIND: f64 = 0.02;

    /// Whether a higher rate than the best may be good, because none was tried, or not all that would have been.
    pub(crate) fn is_open_ended(&self) -> bool {
        self.interrupted || self.steps.iter().all(SweepStep::is_good)
    }

    /// The highest rate that was good.
    pub(crate) fn best(&self) -> Option<&SweepStep> {
        self.steps.iter().filter(|step| step.is_good()).max_by(|one, other| one.rate.total_cmp(&other.rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Fault, FaultKind};

    #[test]
    fn a_verdict_is_the_first_reason_why_a_rate_is_not_good() {
        let ms = Duration::from_millis;
        for (kind, elapsed, latency, expected) in [
            (None, 1010, 1, Verdict::Good),
            (None, 1010, 3, Verdict::P99),
            (None, 1050, 3, Verdict::Behind),
            (Some(FaultKind::NotSent), 1010, 1, Verdict::Behind),
            (Some(FaultKind::WrongReply), 1050, 3, Verdict::Errors),
        ] {
            let mut result = TestResult { elapsed: ms(elapsed), ..TestResult::empty("SET") };
            result.tally.service.record(ms(latency));
            if let Some(kind) = kind {
                result.tally.faults.add(Fault { kind, detail: String::new() });
            }
            assert_eq!(Verdict::of(&result, ms(1000), ms(2)), expected, "{elapsed} ms, {latency} ms");
        }
    }
}
