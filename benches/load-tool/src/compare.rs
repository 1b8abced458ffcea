//! Two servers, or one over two transports, measured in alternating rounds.
//!
//! The machine's speed varies from one second to the next. Rounds are therefore short, the order alternates, and the ratio
//! is taken within each round. Its interval says how reliable it is.

use std::sync::Arc;

use crate::generator::Limit;
use crate::progress::Progress;
use crate::result::{Shape, TestResult};
use crate::session::Session;
use crate::statistics::{Ratio, median};
use crate::workload::Script;
use valkey_rdma_program::Interrupt;

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
    /// The rounds.
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

/// Runs one test in `rounds` rounds, each of which ends at `turn` on either server. `None` if the user interrupted before
/// the first round was whole, or the test could not be prepared: then its result is in `failed`, with the number of its side.
#[expect(clippy::too_many_arguments, reason = "each is one part of a run")]
pub(crate) async fn compare(
    sessions: &mut [Session; 2],
    script: &Arc<Script>,
    turn: Limit,
    rounds: usize,
    progress: Progress,
    interrupt: &Interrupt,
    failed: &mut Vec<(usize, TestResult)>,
    say: &mut dyn FnMut(&str),
) -> Option<Comparison> {
    let mut numbers = [None; 2];
    for (side, (session, numbers)) in sessions.iter_mut().zip(&mut numbers).enumerate() {
        match session.prepare(script, progress, say).await {
            Ok(limited) => *numbers = limited,
            Err(result) => {
                failed.push((side, *result));
                return None;
            }
        }
    }
    let mut sides = [Side::new(&script.title), Side::new(&script.title)];
    // The round before the first warms up and does not count.
    for number in 0..=rounds {
        let first = number % 2;
        let mut results = [None, None];
        for turn_of in [first, 1 - first] {
            let session = &mut sessions[turn_of];
            let (limit, pace) = ((turn, numbers[turn_of]), session.plan().pace);
            results[turn_of] = Some(session.measure(script, limit, pace, progress).await);
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
            failed.extend(results.into_iter().enumerate().filter(|(_, result)| !result.is_right()));
        }
        if gave_up || wrong && sessions[0].plan().fail_fast() {
            break;
        }
    }
    let shape = sessions[0].plan().shape.clone();
    (!sides[0].rounds.is_empty()).then(|| Comparison { title: script.title.clone(), shape, sides })
}
