//! Two servers, or one over two transports, measured in turns.
//!
//! The machine's speed varies from one second to the next, so both take turns in short rounds, which one comes first
//! alternates, and what is compared is the ratio within each round. Its interval says how sure the ratio is.

use std::sync::Arc;

use crate::generator::Limit;
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::result::{Shape, TestResult};
use crate::session::Session;
use crate::workload::Script;

/// One test on both servers.
#[derive(Debug, Clone)]
pub(crate) struct Comparison {
    /// The test's title.
    pub(crate) title: String,
    /// How its requests are arranged.
    pub(crate) shape: Shape,
    /// The server asked for, and the one it is compared with.
    pub(crate) sides: [Side; 2],
}

/// One test on one server: all its rounds.
#[derive(Debug, Clone)]
pub(crate) struct Side {
    /// Latencies, faults and counters of all rounds; its time is the sum of theirs.
    pub(crate) total: TestResult,
    /// Each round by itself.
    pub(crate) rounds: Vec<Round>,
}

/// What is compared of a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Round {
    /// Replies per second.
    pub(crate) rate: f64,
    /// Median latency in seconds.
    pub(crate) p50: f64,
    /// 99th percentile of latency in seconds.
    pub(crate) p99: f64,
    /// Microseconds of this tool's CPU per reply.
    pub(crate) cpu: f64,
}

/// How many times as much, and between what it lies with 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    /// The geometric mean over rounds.
    pub(crate) mean: f64,
    /// The lower end.
    pub(crate) low: f64,
    /// The upper end.
    pub(crate) high: f64,
}

impl Side {
    fn new(title: &str) -> Side {
        Side { total: TestResult::empty(title), rounds: Vec::new() }
    }

    fn add(&mut self, round: TestResult) {
        let latencies = round.latencies();
        self.rounds.push(Round {
            rate: round.rate(),
            p50: latencies.quantile(0.5).as_secs_f64(),
            p99: latencies.quantile(0.99).as_secs_f64(),
            cpu: round.cpu_per_request(),
        });
        self.total.merge(round);
    }

    /// The median over rounds of what `of` picks.
    pub(crate) fn median(&self, of: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(of).collect())
    }
}

impl Comparison {
    /// How many times as much as the other server the first one has of what `of` picks.
    pub(crate) fn ratio(&self, of: impl Fn(&Round) -> f64) -> Ratio {
        let [one, other] = &self.sides;
        let logs = one.rounds.iter().zip(&other.rounds).map(|(one, other)| (of(one) / of(other)).ln());
        Ratio::of_logs(logs.filter(|log| log.is_finite()).collect())
    }

    /// Rounds in which both servers answered, which ratios are made of.
    pub(crate) fn usable_rounds(&self) -> usize {
        let [one, other] = &self.sides;
        one.rounds.iter().zip(&other.rounds).filter(|(one, other)| one.rate > 0.0 && other.rate > 0.0).count()
    }

    /// What was wrong on either server.
    pub(crate) fn faults(&self) -> impl Iterator<Item = &TestResult> {
        self.sides.iter().map(|side| &side.total).filter(|total| !total.is_right())
    }
}

impl Ratio {
    /// From the logarithms of the rounds' ratios: Student's interval, which the logarithm makes symmetric.
    fn of_logs(logs: Vec<f64>) -> Ratio {
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let spread = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let half = student(logs.len().saturating_sub(1)) * (spread / count).sqrt();
        Ratio { mean: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp() }
    }

    /// Whether the interval leaves no doubt which is more.
    #[cfg(test)]
    pub(crate) fn is_clear(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// The 97.5 % quantile of Student's distribution.
///
/// Source: any table of it; beyond 30 degrees of freedom by the expansion of Cornish and Fisher.
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    match freedom {
        0 => f64::INFINITY,
        1..=30 => TABLE[freedom - 1],
        more => 1.96 + 2.372 / more as f64,
    }
}

/// The middle one of `values`, or zero if there are none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Runs one test in `rounds` rounds, each of which ends at `turn` on either server. `None` if the user interrupted before
/// the first round was whole, or the test could not be prepared: then its result is in `failed`.
pub(crate) async fn compare(
    sessions: &mut [Session; 2],
    script: &Arc<Script>,
    turn: Limit,
    rounds: usize,
    progress: Progress,
    interrupt: &Interrupt,
    failed: &mut Vec<TestResult>,
) -> Option<Comparison> {
    for session in sessions.iter_mut() {
        if let Err(result) = session.prepare(script, progress).await {
            failed.push(*result);
            return None;
        }
    }
    let mut sides = [Side::new(&script.title), Side::new(&script.title)];
    // The round before the first warms up and does not count.
    for number in 0..=rounds {
        let first = number % 2;
        let mut results = [None, None];
        for turn_of in [first, 1 - first] {
            let session = &sessions[turn_of];
            results[turn_of] = Some(session.measure(script, turn, session.plan().pace, progress).await);
        }
        if interrupt.is_asked() {
            break; // The round is not whole.
        }
        let results = results.map(|result| result.unwrap_or_else(|| TestResult::empty(&script.title)));
        let wrong = results.iter().any(|result| !result.is_right());
        let gave_up = results.iter().any(|result| result.gave_up);
        if number > 0 {
            for (side, result) in sides.iter_mut().zip(results) {
                side.add(result);
            }
        } else if wrong {
            failed.extend(results.into_iter().filter(|result| !result.is_right()));
        }
        if gave_up || wrong && sessions[0].plan().fail_fast() {
            break;
        }
    }
    let shape = sessions[0].plan().shape.clone();
    (!sides[0].rounds.is_empty()).then(|| Comparison { title: script.title.clone(), shape, sides })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_disturbed_round_does_not_move_the_median() {
        assert_eq!(median(vec![10.0, 12.0, 0.1, 11.0, 13.0]), 11.0);
        assert_eq!(median(vec![]), 0.0);
    }

    #[test]
    fn the_interval_of_a_ratio_is_students() {
        let ratio = Ratio::of_logs(vec![2f64.ln(), 2f64.ln(), 2f64.ln()]);
        assert!((ratio.mean - 2.0).abs() < 1e-9 && ratio.is_clear(), "{ratio:?}");

        // Logarithms -1, 0, 1: mean 0, deviation 1, so the half width is 4.303 / sqrt(3).
        let unsure = Ratio::of_logs(vec![-1.0, 0.0, 1.0]);
        assert!((unsure.high.ln() - 4.303 / 3f64.sqrt()).abs() < 1e-9 && !unsure.is_clear(), "{unsure:?}");
    }

    #[test]
    fn one_round_gives_no_interval() {
        let ratio = Ratio::of_logs(vec![0.5]);
        assert!(!ratio.is_clear(), "{ratio:?}");
    }
}
