//! What a comparison of two servers found: its rounds, and their ratios.

use valkey_rdma_program::median;

use super::{Ratio, Shape, TestResult};

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
    /// Microseconds of the server's CPU per reply; not a number if they are not known.
    pub(crate) server_cpu: f64,
}

impl Side {
    /// A side without rounds.
    pub(crate) fn new(title: &str) -> Side {
        Side { total: TestResult::empty(title), rounds: Vec::new() }
    }

    /// Adds a round that counts.
    pub(crate) fn add(&mut self, round: TestResult) {
        let latencies = round.latencies();
        self.rounds.push(Round {
            rate: round.rate(),
            p50: latencies.quantile(0.5).as_secs_f64(),
            p99: latencies.quantile(0.99).as_secs_f64(),
            cpu: round.cpu_per_request(),
            server_cpu: round.server_cpu_per_request().unwrap_or(f64::NAN),
        });
        self.total.merge(round);
    }

    /// The median over rounds of what `of` picks.
    pub(crate) fn median(&self, of: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(of)).unwrap_or(0.0)
    }

    /// Whether the server's CPU time is known of each round.
    pub(crate) fn knows_server_cpu(&self) -> bool {
        self.rounds.iter().all(|round| round.server_cpu.is_finite())
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

    /// Whether the CPU time of both servers is known.
    pub(crate) fn knows_server_cpu(&self) -> bool {
        self.sides.iter().all(Side::knows_server_cpu)
    }

    /// What was wrong on either server.
    pub(crate) fn faults(&self) -> impl Iterator<Item = &TestResult> {
        self.sides.iter().map(|side| &side.total).filter(|total| !total.is_right())
    }
}
