//! Runs one test: tasks draw requests from a common stock, send them, check the replies and record the latencies.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::task::{JoinSet, unconstrained};
use valkey_rdma_client::{Client, Command, Error, Value};

use crate::counters::Counters;
use crate::faults::{Fault, FaultKind, FaultLog};
use crate::interrupt::Interrupt;
use crate::measure::Recorder;
use crate::progress::Progress;
use crate::result::{Shape, TestResult};
use crate::verify;
use crate::workload::{Key, Keys, Test, Values};

/// One test to run.
#[derive(Debug, Clone)]
pub struct Job {
    /// Which command.
    pub test: Test,
    /// Which key each request uses.
    pub keys: Keys,
    /// The value of each key.
    pub values: Values,
    /// Number of requests, over all tasks.
    pub requests: u64,
}

/// Runs `job` over `clients` and returns when every reply has come, when no connection is left, or when the user
/// interrupts.
///
/// Cancel safety: dropping the future ends all tasks; their measurements are lost.
pub async fn run(
    job: Job,
    clients: &[Client],
    shape: &Shape,
    title: &str,
    progress: Progress,
    interrupt: &Interrupt,
) -> TestResult {
    let requests = job.requests;
    let test = job.test;
    let issued = Arc::new(AtomicU64::new(0));
    let running = Arc::new(Running {
        job,
        pipeline: shape.pipeline as u64,
        issued: Arc::clone(&issued),
        recorder: Recorder::new(shape.threads),
        faults: FaultLog::default(),
    });
    let line = progress.start(title, requests, issued);
    let before = counters_of(clients);
    let start = Instant::now();

    let mut tasks = JoinSet::new();
    // Task by task over the connections, so that few requests spread over many connections too.
    let places = (0..shape.tasks_per_connection).flat_map(|_| clients).enumerate();
    for (number, client) in places.take(usize::try_from(requests).unwrap_or(usize::MAX)) {
        let running = Arc::clone(&running);
        tasks.spawn(Worker { running, client: client.clone(), number, latencies: Vec::new() }.work());
    }
    tokio::select! {
        () = finish(&mut tasks) => {
            let left = requests.saturating_sub(running.issued.load(Ordering::Relaxed));
            if left > 0 {
                let story = format!("{left} requests were left when the last connection had failed");
                running.faults.add_many(Fault { kind: FaultKind::NotSent, story }, left);
            }
        }
        () = interrupt.asked() => {}
    }
    let elapsed = start.elapsed();
    let counters = counters_of(clients).zip(before).map(|(after, before)| after.since(before));
    tasks.shutdown().await;
    drop(line);

    TestResult {
        test,
        elapsed,
        latencies: running.recorder.snapshot(),
        faults: running.faults.snapshot(),
        counters,
    }
}

/// Waits for all tasks; a bug in one is a bug in the tool, so its panic goes on.
async fn finish(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// What all connections together have counted; `None` if they count nothing (TCP).
fn counters_of(clients: &[Client]) -> Option<Counters> {
    let mut sum = Counters::default();
    for client in clients {
        sum.add(Counters::from(&client.stats()?));
    }
    Some(sum)
}

/// What the tasks of a test share.
struct Running {
    job: Job,
    pipeline: u64,
    /// Number of requests drawn so far; may pass the number of requests at the end.
    issued: Arc<AtomicU64>,
    recorder: Recorder,
    faults: FaultLog,
}

impl Running {
    /// Draws the next requests, at most a pipeline of them; `None` when all are taken.
    fn draw(&self) -> Option<Range<u64>> {
        let first = self.issued.fetch_add(self.pipeline, Ordering::Relaxed);
        let end = self.job.requests.min(first.saturating_add(self.pipeline));
        (first < end).then_some(first..end)
    }

    fn command(&self, key: &Key) -> Command {
        match self.job.test {
            Test::Ping => Command::new("PING"),
            Test::Set => Command::new("SET").arg(key.as_bytes()).arg_bytes(self.job.values.of(key)),
            Test::Get => Command::new("GET").arg(key.as_bytes()),
        }
    }
}

/// One task of a test, on one connection.
struct Worker {
    running: Arc<Running>,
    client: Client,
    /// Which task this is.
    number: usize,
    /// Latencies that were measured and not yet recorded.
    latencies: Vec<Duration>,
}

impl Worker {
    /// Sends pipeline after pipeline until nothing is left or the connection has failed.
    async fn work(mut self) {
        while let Some(requests) = self.running.draw() {
            let alive = if requests.end - requests.start == 1 {
                self.single(requests.start).await
            } else {
                self.batch(requests).await
            };
            self.running.recorder.record(self.number, self.latencies.drain(..));
            if !alive {
                return;
            }
        }
    }

    /// Sends one request and waits for its reply; whether the connection lives.
    async fn single(&mut self, request: u64) -> bool {
        let key = self.running.job.keys.of(request);
        let start = Instant::now();
        let reply = self.client.execute(self.running.command(&key)).await;
        self.settle(&key, start, &reply)
    }

    /// Sends all `requests` before it waits for the first reply; whether the connection lives.
    ///
    /// Each reply is timed, checked and freed as it comes, so that a pipeline of large values never is in memory whole.
    async fn batch(&mut self, requests: Range<u64>) -> bool {
        let client = self.client.clone();
        let start = Instant::now();
        let mut waiting: Vec<_> = requests
            .map(|request| {
                let key = self.running.job.keys.of(request);
                (key, Box::pin(client.execute(self.running.command(&key))))
            })
            .collect();
        let mut alive = true;
        let replies = poll_fn(|context| {
            waiting.retain_mut(|(key, request)| match request.as_mut().poll(context) {
                Poll::Ready(reply) => {
                    alive &= self.settle(key, start, &reply);
                    false
                }
                Poll::Pending => true,
            });
            if waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        });
        // Tokio's budget for a task would otherwise cut a long pipeline into pieces.
        unconstrained(replies).await;
        alive
    }

    /// Checks and times a reply that has just come; whether the connection lives.
    fn settle(&mut self, key: &Key, start: Instant, reply: &Result<Value, Error>) -> bool {
        let latency = start.elapsed();
        let job = &self.running.job;
        if let Err(fault) = verify::check(job.test, key, job.values.expected(key), reply) {
            self.running.faults.add(fault);
        }
        let alive = !reply.as_ref().is_err_and(verify::ends_connection);
        if alive {
            self.latencies.push(latency);
        }
        alive
    }
}
