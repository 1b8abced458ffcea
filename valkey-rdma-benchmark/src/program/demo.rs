//! `--demo`: one small workload over the emulated device and over TCP loopback, against a mock in this process.

mod mock;
mod screen;

use std::io;

use valkey_rdma_client::Endpoint;
use valkey_rdma_mock::BindError;

use crate::drive::{FleetError, Limit, Target};
use crate::measure::{Comparison, Shape, TestResult};
use crate::run::{Plan, Progress, Session, compare};
use crate::workload::{Keys, Sizes, TestOptions, tests_from_list};
use mock::MockServer;
use valkey_rdma_program::Interrupt;

pub(crate) use screen::screen;

/// Length of the values in bytes.
pub(crate) const VALUE_LEN: u64 = 64;

/// Connections and tasks on each, in the order shown.
const SHAPES: [(usize, Option<usize>); 3] = [(1, None), (1, Some(50)), (50, None)];

/// How much time the demo takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Rounds that count, per workload and transport.
    pub(crate) rounds: usize,
    /// When each turn ends.
    pub(crate) turn: Limit,
}

/// About 18 seconds in all.
impl Default for Pace {
    fn default() -> Pace {
        Pace { rounds: 9, turn: Limit::Time(std::time::Duration::from_millis(100)) }
    }
}

/// Why the demo failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DemoError {
    #[error("the mock server could not start")]
    Bind(#[from] BindError),
    #[error("the mock server could not start")]
    Thread(#[from] io::Error),
    #[error("the mock server ended before it listened; this is a bug")]
    MockEnded,
    #[error(transparent)]
    Connect(#[from] FleetError),
}

/// What the demo found.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// The comparisons.
    pub(crate) comparisons: Vec<Comparison>,
    /// How many were planned. Without an interrupt or a failure, all of them are there.
    pub(crate) planned: usize,
    /// Tests that failed before their first round counted, each with its side.
    pub(crate) failed: Vec<(usize, TestResult)>,
}

impl Shown {
    /// The tests in which a reply was wrong or did not come.
    pub(crate) fn faults(&self) -> impl Iterator<Item = &TestResult> {
        self.comparisons
            .iter()
            .flat_map(Comparison::faults)
            .chain(self.failed.iter().map(|(_, result)| result))
    }

    /// Whether every planned comparison is there, and every reply was right.
    pub(crate) fn is_right(&self) -> bool {
        self.comparisons.len() == self.planned && self.faults().next().is_none()
    }
}

/// Runs the demo; fewer comparisons than planned if the user interrupts.
pub(crate) async fn demo(pace: Pace, progress: Progress, interrupt: &Interrupt) -> Result<Shown, DemoError> {
    let mock = MockServer::start().await?;
    let tests = tests_from_list("ping_mbulk,set,get").unwrap_or_default();
    let mut shown = Shown { planned: SHAPES.len() * tests.len(), ..Shown::default() };
    for (connections, tasks_per_connection) in SHAPES {
        let shape = Shape {
            connections,
            tasks_per_connection,
            library: None,
            pipeline: 1,
            threads: 1,
            runtime_threads: 1,
            sizes: VALUE_LEN.to_string(),
            keyspace: None,
            key_order: None,
            seed: None,
        };
        let scripts = tests.iter().map(|test| test.script(&Keys::SINGLE, &TestOptions::default())).collect();
        let plan = Plan::of(shape, scripts, Sizes::fixed(VALUE_LEN), pace.turn);
        let open = |endpoint: &Endpoint| {
            let (target, plan) = (Target::new(endpoint.clone()), plan.clone());
            async move { Session::open(target, plan, interrupt, &mut |_| {}).await }
        };
        let [emulated, tcp] = mock.endpoints();
        let (Some(emulated), Some(tcp)) = (open(emulated).await?, open(tcp).await?) else { break };
        let mut sessions = [emulated, tcp];
        for script in &plan.scripts {
            let compared = compare(
                &mut sessions,
                script,
                pace.turn,
                pace.rounds,
                progress,
                interrupt,
                &mut shown.failed,
                &mut |_| {},
            )
            .await;
            shown.comparisons.extend(compared);
        }
    }
    Ok(shown)
}
