//! A whole run: connect, then per test write the keys it reads, measure it, report it.

use std::io::{self, Write};
use std::pin::pin;
use std::time::Duration;

use valkey_rdma_client::{Client, Endpoint, Error, Transport};

use crate::args::Args;
use crate::background::Background;
use crate::demo::DemoError;
use crate::faults::{Fault, FaultKind};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::report::{self, Format, Style};
use crate::result::{RunInfo, Shape, TestResult};
use crate::run::{self, Job};
use crate::target;
use crate::workload::{Keys, Test, Values};

/// Largest amount of values that is under way on one connection while keys are written.
const POPULATE_BYTES: usize = 1 << 20;
/// Largest number of commands that are under way on one connection while keys are written.
const POPULATE_COMMANDS: usize = 64;

/// How long the wait for connects that were given up goes without saying.
const QUIET_WAIT: Duration = Duration::from_secs(1);
/// How long it goes on after that. A server that accepts nothing for so long is stuck.
const LONGEST_WAIT: Duration = Duration::from_secs(9);

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Every reply was right.
    Right,
    /// Some reply was not, or did not come.
    Wrong,
    /// The user stopped it.
    Interrupted,
}

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The server could not be reached, or refused us.
    #[error(transparent)]
    Connect(Error),
    /// The demo could not be set up.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// Results could not be written.
    #[error("the results could not be written")]
    Output(#[from] io::Error),
}

/// Measures `endpoint` as `args` say, writing results to `out` and what went wrong to `err`.
///
/// # Errors
/// [`RunError`] if there is nothing to measure, or nowhere to write to.
pub async fn benchmark(
    args: &Args,
    endpoint: &Endpoint,
    out: &mut dyn Write,
    format: Format,
    err: &mut dyn Write,
    err_style: Style,
    interrupt: &Interrupt,
) -> Result<Outcome, RunError> {
    let bench = Bench::new(args);
    let Some((clients, connect_time)) = connect(endpoint, bench.shape.connections, err, interrupt).await?
    else {
        return Ok(Outcome::Interrupted);
    };
    let run = RunInfo::new(endpoint, &clients[0], bench.shape, connect_time);
    format.write_head(out, &run)?;
    out.flush()?;

    let mut results = Vec::new();
    for test in args.tests.iter() {
        if interrupt.is_asked() {
            break;
        }
        let written =
            results.last().is_some_and(|last: &TestResult| last.test == Test::Set && last.is_right());
        let result = bench.test(test, &clients, written, interrupt).await;
        if interrupt.is_asked() && result.latencies.count() == 0 {
            break;
        }
        format.write_test(out, &run, &result)?;
        out.flush()?;
        report::write_faults(err, &result, err_style)?;
        results.push(result);
    }
    format.write_tail(out, &results)?;
    out.flush()?;

    Ok(if interrupt.is_asked() {
        writeln!(err, "interrupted: the last test is not complete")?;
        Outcome::Interrupted
    } else if results.iter().all(TestResult::is_right) {
        Outcome::Right
    } else {
        Outcome::Wrong
    })
}

/// Opens the connections. If that fails, or is interrupted (`None`), the process may end after it: nothing is under
/// way then whose loss a server may not survive.
async fn connect(
    endpoint: &Endpoint,
    count: usize,
    err: &mut dyn Write,
    interrupt: &Interrupt,
) -> Result<Option<(Vec<Client>, Duration)>, RunError> {
    let background = Background::from_now();
    let mut connecting = pin!(target::connect(endpoint, count, interrupt));
    let connected = tokio::select! {
        biased;
        connected = &mut connecting => connected,
        () = interrupt.asked() => {
            // From here on, nothing may end this before its time, not even that nobody reads.
            let _ = writeln!(err, "interrupted: waiting for the connects under way; Ctrl-C again ends at once");
            connecting.await
        }
    };
    if endpoint.transport() != Transport::Tcp && !matches!(connected, Ok(Some(_))) {
        complete(background, err, interrupt).await;
    }
    connected.map_err(RunError::Connect)
}

/// Lets the transport complete the connects that were given up, within reason.
async fn complete(background: Background, err: &mut dyn Write, interrupt: &Interrupt) {
    if background.finish(QUIET_WAIT).await {
        return;
    }
    let _ = writeln!(err, "waiting for the server to take the connects given up; Ctrl-C ends at once");
    tokio::select! {
        _ = background.finish(LONGEST_WAIT) => {}
        // Once more, if there was one before: that ends the process.
        () = interrupt.asked(), if !interrupt.is_asked() => {}
    }
}

/// What all tests of a run share.
struct Bench {
    shape: Shape,
    keys: Keys,
    values: Values,
    requests: u64,
}

impl Bench {
    fn new(args: &Args) -> Bench {
        let shape = Shape::new(args);
        let keys = match shape.keyspace {
            Some(len) => Keys::Random { len, seed: args.seed },
            None => Keys::Single,
        };
        let values = Values::new(shape.value_len, shape.keyspace.map_or(1, |len| len.get()));
        Bench { shape, keys, values, requests: args.requests }
    }

    /// Runs one test; `written` says that the keys which it may read have just been written.
    async fn test(&self, test: Test, clients: &[Client], written: bool, interrupt: &Interrupt) -> TestResult {
        if test == Test::Get && !written {
            let populated = self.populate(clients, interrupt).await;
            if !populated.is_right() || interrupt.is_asked() {
                return unread(populated);
            }
        }
        let job = Job { test, keys: self.keys, values: self.values.clone(), requests: self.requests };
        run::run(job, clients, &self.shape, test.title(), Progress::Terminal, interrupt).await
    }

    /// Writes the keys that a test of reads will read.
    async fn populate(&self, clients: &[Client], interrupt: &Interrupt) -> TestResult {
        let (keys, requests) = self.keys.to_populate(self.requests);
        let pipeline = (POPULATE_BYTES / self.values.len()).clamp(1, POPULATE_COMMANDS);
        let shape = Shape { tasks_per_connection: 1, pipeline, ..self.shape };
        let job = Job { test: Test::Set, keys, values: self.values.clone(), requests };
        run::run(job, clients, &shape, "writing keys", Progress::Terminal, interrupt).await
    }
}

/// The result of a GET test that was not run, because its keys could not be written.
fn unread(populated: TestResult) -> TestResult {
    let mut result = TestResult::empty(Test::Get);
    if !populated.is_right() {
        let story = "the keys to read could not be written, so nothing was read".to_owned();
        result.faults.add(Fault { kind: FaultKind::NotPopulated, story });
        result.faults.merge(populated.faults);
    }
    result
}
