//! `--demo`: one small workload over the emulated device and over TCP loopback, against a mock in this process.

mod mock;
mod screen;

use std::io;

use valkey_rdma_mock::BindError;

use crate::compare::{Comparison, compare};
use crate::generator::{FleetError, Limit, Target};
use crate::interrupt::Interrupt;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::result::Shape;
use crate::session::Session;
use crate::workload::{Keys, Sizes, TestOptions, tests_from_list};
use mock::MockServer;

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

/// Runs the demo and returns its comparisons; fewer if the user interrupts.
pub(crate) async fn demo(
    pace: Pace,
    progress: Progress,
    interrupt: &Interrupt,
) -> Result<Vec<Comparison>, DemoError> {
    let mock = MockServer::start().await?;
    let mut comparisons = Vec::new();
    for (connections, tasks_per_connection) in SHAPES {
        let shape = Shape {
            connections,
            tasks_per_connection,
            pipeline: 1,
            threads: 1,
            sizes: VALUE_LEN.to_string(),
            keyspace: None,
            seed: None,
        };
        let tests = tests_from_list("ping_mbulk,set,get").unwrap_or_default();
        let scripts = tests.iter().map(|test| test.script(&Keys::SINGLE, &TestOptions::default())).collect();
        let plan = Plan::of(shape, scripts, Sizes::fixed(VALUE_LEN), pace.turn);
        let open = |endpoint: &valkey_rdma_client::Endpoint| {
            let (target, plan) = (Target::new(endpoint.clone()), plan.clone());
            async move { Session::open(target, plan, interrupt, &mut |_| {}).await }
        };
        let [emulated, tcp] = mock.endpoints();
        let (Some(emulated), Some(tcp)) = (open(emulated).await?, open(tcp).await?) else { break };
        let mut sessions = [emulated, tcp];
        for script in &plan.scripts {
            let mut failed = Vec::new();
            let compared = compare(
                &mut sessions,
                script,
                pace.turn,
                pace.rounds,
                progress,
                interrupt,
                &mut failed,
                &mut |_| {},
            )
            .await;
            comparisons.extend(compared);
        }
    }
    Ok(comparisons)
}
