//! What a run is and what a test found, ready to be reported.

use std::num::NonZeroU64;
use std::time::Duration;

use super::{Counters, Environment, FaultKind, Faults, Latencies, Outage, PerRequest, Tally};
use crate::drive::{Choice, Pace, Usage, Verify};

/// What stays the same for all tests of a run.
#[derive(Debug, Clone)]
pub(crate) struct RunInfo {
    /// The server, as a URL without its password.
    pub(crate) target: String,
    /// `rdma`, `emulated`, `tcp` or `unix`; with `+tls` if it is encrypted.
    pub(crate) transport: String,
    /// Protocol, TLS, device, active MTU and windows, as far as this transport has them.
    pub(crate) link: String,
    /// Version and cipher suite of TLS, such as `TLS 1.3 TLS_AES_128_GCM_SHA256`; `None` if nothing is encrypted.
    pub(crate) tls: Option<String>,
    /// Connections, tasks and pipeline.
    pub(crate) shape: Shape,
    /// When requests begin.
    pub(crate) pace: Pace,
    /// How long it took until all connections were open; connections open concurrently.
    pub(crate) connect_time: Duration,
    /// What is checked of each reply.
    pub(crate) verify: Verify,
    /// Where this was measured.
    pub(crate) environment: Environment,
}

/// How many requests are in flight at once, on which connections and tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Number of connections.
    pub(crate) connections: usize,
    /// Number of tasks that share each connection through the client library; `None` if connections are driven
    /// directly.
    pub(crate) tasks_per_connection: Option<usize>,
    /// The client library, if it is not this project's own.
    pub(crate) library: Option<Choice>,
    /// Number of requests that are sent before the first reply is awaited.
    pub(crate) pipeline: usize,
    /// Number of threads that drive the connections.
    pub(crate) threads: usize,
    /// Number of threads of the runtime that tasks of each thread run on.
    pub(crate) runtime_threads: usize,
    /// Lengths of values in bytes.
    pub(crate) sizes: String,
    /// Number of keys; `None` for a single key.
    pub(crate) keyspace: Option<NonZeroU64>,
    /// How keys are drawn: `uniform`, `zipf:0.99` and so on, or `sequential`; `None` for a single key.
    pub(crate) key_order: Option<String>,
    /// The seed of random keys (`--seed`): with it, another run uses the same.
    pub(crate) seed: Option<u64>,
}

impl Shape {
    /// Which way values go: `direct` or `stream`.
    pub(crate) fn way(&self) -> &'static str {
        self.library.as_ref().map_or("stream", Choice::way)
    }
}

/// What one test found.
#[derive(Debug, Clone)]
pub struct TestResult {
    /// Its title.
    pub(crate) title: String,
    /// The titles of a mix's commands.
    pub(crate) parts: Vec<String>,
    /// From the first request until the last reply.
    pub(crate) elapsed: Duration,
    /// When requests began.
    pub(crate) pace: Pace,
    /// Latencies, replies over time and faults.
    pub(crate) tally: Tally,
    /// What the transport did meanwhile; `None` on TCP.
    pub(crate) counters: Option<Counters>,
    /// What the threads that drove the connections used of the machine.
    pub(crate) usage: Usage,
    /// The processor time that the server used meanwhile; `None` if it was not asked, or does not say.
    pub(crate) server_cpu: Option<Duration>,
    /// When no connection was up.
    pub(crate) outages: Vec<Outage>,
    /// How often a connection was lost.
    pub(crate) lost: u64,
    /// How long connecting anew took (`-k 0`).
    pub(crate) connects: Latencies,
    /// Whether the server stayed away for longer than it is waited for.
    pub(crate) gave_up: bool,
}

impl TestResult {
    /// The result of a test that sent nothing.
    pub(crate) fn empty(title: impl Into<String>) -> TestResult {
        TestResult {
            title: title.into(),
            parts: Vec::new(),
            elapsed: Duration::ZERO,
            pace: Pace::Closed,
            tally: Tally::default(),
            counters: None,
            usage: Usage::default(),
            server_cpu: None,
            outages: Vec::new(),
            lost: 0,
            connects: Latencies::default(),
            gave_up: false,
        }
    }

    /// The title of the test.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// From the first request until the last reply.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// What went wrong.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.tally.faults
    }

    /// When no connection was up, since the start of the test.
    #[must_use]
    pub fn outages(&self) -> &[Outage] {
        &self.outages
    }

    /// How often a connection was lost.
    #[must_use]
    pub fn connections_lost(&self) -> u64 {
        self.lost
    }

    /// Whether nothing was wrong.
    pub fn is_right(&self) -> bool {
        self.tally.faults.is_empty()
    }

    /// Whether nothing was wrong but that requests were due and not sent: the server is too slow for the rate.
    pub(crate) fn is_right_or_late(&self) -> bool {
        self.tally.faults.counts().all(|(kind, _)| *kind == FaultKind::NotSent)
    }

    /// Number of replies.
    pub fn replies(&self) -> u64 {
        self.tally.service.count()
    }

    /// The latencies that a user feels: from the intended start if there is a schedule.
    pub fn latencies(&self) -> &Latencies {
        self.tally.corrected.as_ref().unwrap_or(&self.tally.service)
    }

    /// Adds another run of the same test that came after this one.
    pub(crate) fn merge(&mut self, mut next: TestResult) {
        // A sum without one of the runs would be too low.
        let sum = self.server_cpu.zip(next.server_cpu).map(|(sum, more)| sum + more);
        self.server_cpu = if self.elapsed.is_zero() { next.server_cpu } else { sum };
        self.pace = next.pace;
        if self.parts.is_empty() {
            self.parts = next.parts;
        }
        self.elapsed += next.elapsed;
        let series = std::mem::take(&mut next.tally.series);
        self.tally.merge(next.tally);
        self.tally.series.append(&series);
        self.usage.add(next.usage);
        self.outages.extend(next.outages);
        self.lost += next.lost;
        self.connects.merge(&next.connects);
        self.gave_up |= next.gave_up;
        if let Some(counters) = next.counters {
            self.counters.get_or_insert_default().add(counters);
        }
    }

    /// Replies per second.
    pub fn rate(&self) -> f64 {
        self.per_second(self.replies())
    }

    /// Bytes of values per second, both ways.
    pub(crate) fn payload_rate(&self) -> f64 {
        self.per_second(self.tally.payload)
    }

    /// How much of the link's speed was used on its busier way, if that is known: the transport counts the bytes of the stream, and not those that the
    /// server's device moves directly.
    pub(crate) fn share_of_link(&self, run: &RunInfo) -> Option<f64> {
        let speed = run.environment.link_speed().filter(|_| run.shape.way() == "stream")?;
        Some(self.per_second(self.counters.map_or(0, |counters| counters.bytes_one_way())) / speed)
    }

    fn per_second(&self, count: u64) -> f64 {
        self.per_time(count as f64)
    }

    fn per_time(&self, amount: f64) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { amount / seconds } else { 0.0 }
    }

    /// Microseconds of CPU time of this tool per reply.
    pub(crate) fn cpu_per_request(&self) -> f64 {
        self.usage.cpu().as_secs_f64() * 1e6 / self.replies().max(1) as f64
    }

    /// Microseconds of the server's CPU time per reply, if it is known.
    pub(crate) fn server_cpu_per_request(&self) -> Option<f64> {
        Some(self.server_cpu?.as_secs_f64() * 1e6 / self.replies().max(1) as f64)
    }

    /// How many processors the threads of this tool kept busy.
    pub(crate) fn cores(&self) -> f64 {
        self.per_time(self.usage.cpu().as_secs_f64())
    }

    /// How many processors the server kept busy, if it is known.
    pub(crate) fn server_cores(&self) -> Option<f64> {
        Some(self.per_time(self.server_cpu?.as_secs_f64()))
    }

    /// Transport counters per reply; `None` on TCP.
    pub(crate) fn per_request(&self) -> Option<PerRequest> {
        Some(self.counters?.per_request(self.replies()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_rounds_has_the_commands_of_a_mix() {
        let mut round = TestResult::empty("SET+GET");
        round.parts = vec!["SET".to_owned(), "GET".to_owned()];
        round.tally = Tally::new(false, 2);
        round.tally.parts[1].record(Duration::from_millis(1));
        let mut sum = TestResult::empty("SET+GET");
        for _ in 0..2 {
            sum.merge(round.clone());
        }
        assert_eq!(sum.parts, round.parts);
        assert_eq!(sum.tally.parts.iter().map(Latencies::count).collect::<Vec<_>>(), [0, 2]);
    }
}
