//! `--demo`: one small workload over the emulated device and over TCP loopback, against a mock in this process.
//!
//! The machine's speed varies from one second to the next, so the two transports take turns in short rounds, and what is
//! compared are the medians of the rounds.

mod mock;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use valkey_rdma_client::{Client, Endpoint, Error};
use valkey_rdma_server::BindError;

use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::result::{Shape, TestResult};
use crate::run::{self, Job};
use crate::target;
use crate::workload::{Keys, Test, Values};
use mock::MockServer;

/// Length of the values in bytes.
pub const VALUE_LEN: usize = 64;

/// Connections and tasks on each, in the order shown.
const SHAPES: [(usize, usize); 3] = [(1, 1), (1, 50), (50, 1)];
/// Requests of the round that warms up and finds out how many requests fit into a round.
const WARM_UP: u64 = 1_000;
/// Largest number of requests in a round.
const MOST: u64 = 1_000_000;

/// How much time the demo takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Rounds that count, per workload and transport.
    pub rounds: usize,
    /// How long a round should take: long enough to measure, short enough for the machine not to change meanwhile.
    pub round: Duration,
}

/// About 16 seconds in all.
impl Default for Pace {
    fn default() -> Pace {
        Pace { rounds: 9, round: Duration::from_millis(100) }
    }
}

/// Why there is no demo.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// The mock could not listen on loopback.
    #[error("the mock server could not start")]
    Bind(#[from] BindError),
    /// A thread or runtime could not be had.
    #[error("the mock server could not start")]
    Thread(#[from] io::Error),
    /// The mock's thread ended by itself.
    #[error("the mock server ended before it listened; this is a bug")]
    MockEnded,
    /// The mock could not be reached.
    #[error(transparent)]
    Connect(#[from] Error),
}

/// One workload on both transports.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Which test.
    pub test: Test,
    /// How its requests are arranged.
    pub shape: Shape,
    /// Over the emulated device.
    pub emulated: Side,
    /// Over TCP loopback.
    pub tcp: Side,
}

/// One workload on one transport: all its rounds together.
#[derive(Debug, Clone)]
pub struct Side {
    /// Latencies, faults and counters of all rounds; its time is the sum of theirs.
    pub total: TestResult,
    /// Replies per second in each round.
    pub rates: Vec<f64>,
}

impl Side {
    fn new(test: Test) -> Side {
        Side { total: TestResult::empty(test), rates: Vec::new() }
    }

    fn add(&mut self, round: TestResult) {
        self.rates.push(round.rate());
        self.total.merge(round);
    }

    /// The median of the rounds' rates.
    pub fn rate(&self) -> f64 {
        median(&self.rates)
    }
}

impl Comparison {
    /// How many times as many replies per second came over the emulated device.
    pub fn ratio(&self) -> f64 {
        self.emulated.rate() / self.tcp.rate()
    }

    /// What was wrong on either transport.
    pub fn faults(&self) -> impl Iterator<Item = &TestResult> {
        [&self.emulated.total, &self.tcp.total].into_iter().filter(|total| !total.is_right())
    }
}

/// The middle one of `values`, or zero if there are none.
fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Runs the demo and returns its comparisons; fewer if the user interrupts.
///
/// # Errors
/// [`DemoError`] if the mock cannot be started or reached.
pub async fn demo(
    pace: Pace,
    progress: Progress,
    interrupt: &Interrupt,
) -> Result<Vec<Comparison>, DemoError> {
    let mock = MockServer::start().await?;
    let done = Arc::new(AtomicU64::new(0));
    let steps = SHAPES.len() * Test::ALL.len() * (pace.rounds + 1);
    let line = progress.start("demo", steps as u64, Arc::clone(&done));
    let mut comparisons = Vec::new();
    for (connections, tasks_per_connection) in SHAPES {
        let shape = Shape {
            connections,
            tasks_per_connection,
            pipeline: 1,
            threads: 1,
            value_len: VALUE_LEN,
            keyspace: None,
        };
        let [emulated, tcp] = mock.endpoints();
        let (Some(emulated), Some(tcp)) =
            (open(emulated, &shape, interrupt).await?, open(tcp, &shape, interrupt).await?)
        else {
            break;
        };
        let both = Both { emulated, tcp, shape, pace };
        for test in Test::ALL {
            if let Some(comparison) = both.compare(test, &done, interrupt).await {
                comparisons.push(comparison);
            }
        }
    }
    drop(line);
    Ok(comparisons)
}

async fn open(
    endpoint: &Endpoint,
    shape: &Shape,
    interrupt: &Interrupt,
) -> Result<Option<Vec<Client>>, Error> {
    let connected = target::connect(endpoint, shape.connections, interrupt).await?;
    Ok(connected.map(|(clients, _)| clients))
}

/// Connections of one shape on both transports.
struct Both {
    emulated: Vec<Client>,
    tcp: Vec<Client>,
    shape: Shape,
    pace: Pace,
}

impl Both {
    /// Runs one workload in rounds; `None` if the user interrupted before the first was complete.
    async fn compare(&self, test: Test, done: &AtomicU64, interrupt: &Interrupt) -> Option<Comparison> {
        // The SET test has written the key that the GET test reads: tests run in order on one mock.
        let warm_up = self.round(test, WARM_UP, 0, interrupt).await;
        done.fetch_add(1, Ordering::Relaxed);
        let slower = warm_up.iter().map(TestResult::rate).fold(f64::INFINITY, f64::min);
        let requests = ((slower * self.pace.round.as_secs_f64()) as u64).clamp(WARM_UP, MOST);

        let (mut emulated, mut tcp) = (Side::new(test), Side::new(test));
        for number in 0..self.pace.rounds {
            let [one, other] = self.round(test, requests, number, interrupt).await;
            if interrupt.is_asked() {
                break; // The round is not whole.
            }
            emulated.add(one);
            tcp.add(other);
            done.fetch_add(1, Ordering::Relaxed);
        }
        (!tcp.rates.is_empty()).then_some(Comparison { test, shape: self.shape, emulated, tcp })
    }

    /// Runs `requests` requests on each transport; which one comes first alternates from round to round.
    async fn round(
        &self,
        test: Test,
        requests: u64,
        number: usize,
        interrupt: &Interrupt,
    ) -> [TestResult; 2] {
        let job = Job { test, keys: Keys::Single, values: Values::new(VALUE_LEN, 1), requests };
        let emulated = self.run(job.clone(), &self.emulated, interrupt);
        let tcp = self.run(job, &self.tcp, interrupt);
        if number.is_multiple_of(2) {
            let emulated = emulated.await;
            [emulated, tcp.await]
        } else {
            let tcp = tcp.await;
            [emulated.await, tcp]
        }
    }

    async fn run(&self, job: Job, clients: &[Client], interrupt: &Interrupt) -> TestResult {
        run::run(job, clients, &self.shape, "", Progress::Hidden, interrupt).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_disturbed_round_does_not_move_the_median() {
        assert_eq!(median(&[10.0, 12.0, 0.1, 11.0, 13.0]), 11.0);
        assert_eq!(median(&[]), 0.0);
    }
}
