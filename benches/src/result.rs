//! What a run is and what a test found, ready to be reported.

use std::num::NonZeroU64;
use std::time::Duration;

use valkey_rdma_client::{Client, Endpoint, Protocol, Transport};

use crate::args::Args;
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

impl RunInfo {
    /// Describes a run against `endpoint`, of whose connections `client` is one.
    pub fn new(endpoint: &Endpoint, client: &Client, shape: Shape, connect_time: Duration) -> RunInfo {
        let info = client.info();
        let mut link = match info.protocol {
            Protocol::Resp3 => "RESP3".to_owned(),
            _ => "RESP2".to_owned(),
        };
        if let Some(device) = &info.device {
            link.push_str(&format!(", device {device}"));
        }
        if let Some(mtu) = info.mtu {
            link.push_str(&format!(", active MTU {mtu} bytes"));
        }
        if let (Some(ours), Some(theirs)) = (info.rx_window, info.tx_window) {
            link.push_str(&format!(", windows {ours} bytes ours, {theirs} bytes theirs"));
        }
        if info.transport == Transport::Emulated {
            link.push_str(" (software, not RDMA)");
        }
        RunInfo {
            target: endpoint.to_string(),
            transport: info.transport.to_string(),
            link,
            shape,
            connect_time,
        }
    }
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

impl Shape {
    /// The shape that the flags ask for.
    pub fn new(args: &Args) -> Shape {
        Shape {
            connections: args.clients as usize,
            tasks_per_connection: args.tasks_per_connection as usize,
            pipeline: args.pipeline as usize,
            threads: usize::from(args.threads.max(1)),
            value_len: args.value_len as usize,
            keyspace: args.keyspace(),
        }
    }
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
    /// The result of a test that sent nothing.
    pub fn empty(test: Test) -> TestResult {
        TestResult {
            test,
            elapsed: Duration::ZERO,
            latencies: Latencies::default(),
            faults: Faults::default(),
            counters: None,
        }
    }

    /// Whether nothing was wrong.
    pub fn is_right(&self) -> bool {
        self.faults.is_empty()
    }

    /// Adds another run of the same test that came after this one.
    pub fn merge(&mut self, next: TestResult) {
        self.elapsed += next.elapsed;
        self.latencies.merge(&next.latencies);
        self.faults.merge(next.faults);
        if let Some(counters) = next.counters {
            self.counters.get_or_insert_default().add(counters);
        }
    }

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
