//! What a run is and what a test found, ready to be reported.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::counters::Counters;
use crate::faults::Faults;
use crate::measure::Latencies;
use crate::workload::Test;

/// What stays the same for all tests of a run.
#[derive(Debug, Clone)]
pub struct RunInfo {
    /// The server, as a URL without its password.
    pub target: String,
    /// `rdma`, `emulated` or `tcp`.
    pub transport: String,
    /// Device, active MTU and windows, as far as this transport has them.
    pub link: String,
    /// Connections, tasks and pipeline.
    pub shape: Shape,
    /// How long it took until all connections were open; connections open concurrently.
    pub connect_time: Duration,
}

/// How many requests are under way at once, and how they are arranged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Number of connections.
    pub connections: usize,
    /// Number of tasks that share each connection.
    pub tasks_per_connection: usize,
    /// Number of commands that a task sends before it waits for their replies.
    pub pipeline: usize,
    /// Number of threads that drive the connections.
    pub threads: usize,
    /// Length of every value in bytes.
    pub value_len: usize,
    /// Number of random keys; `None` for a single key.
    pub keyspace: Option<NonZeroU64>,
}

/// What one test found.
#[derive(Debug, Clone)]
pub struct TestResult {
    /// Which test.
    pub test: Test,
    /// From the first request until the last reply.
    pub elapsed: Duration,
    /// One latency per reply that came, right or wrong.
    pub latencies: Latencies,
    /// Everything that was not right.
    pub faults: Faults,
    /// What the transport did meanwhile; `None` on TCP.
    pub counters: Option<Counters>,
}

impl TestResult {
    /// Replies per second.
    pub fn rate(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.latencies.count() as f64 / seconds } else { 0.0 }
    }

    /// Transport counters per reply; `None` on TCP.
    pub fn per_request(&self) -> Option<[f64; Counters::NAMES.len()]> {
        Some(self.counters?.per_request(self.latencies.count()))
    }
}
