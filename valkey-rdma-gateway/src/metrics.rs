//! [`Metrics`]: what a gateway counts.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::inbox::lock;

/// A counter.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of a gateway since its start.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) started: Started,
    pub(crate) accepted: Count,
    pub(crate) refused: Count,
    pub(crate) slow_readers: Count,
    pub(crate) killed: Count,
    /// Commands sent over shared connections, and the writes that carried them.
    pub(crate) commands: Count,
    pub(crate) batches: Count,
    /// Commands sent over private connections, and how often a client moved to one.
    pub(crate) private_commands: Count,
    pub(crate) moves: Count,
    /// Commands that the gateway answered.
    pub(crate) local_commands: Count,
    pub(crate) connects: Count,
    pub(crate) connect_failures: Count,
    pub(crate) lost: Count,
    /// Commands answered with `UPSTREAMLOST` and `NOUPSTREAM`, and commands sent again.
    pub(crate) may_have_run: Count,
    pub(crate) not_sent: Count,
    pub(crate) sent_again: Count,
    /// Time from reading a command to writing it to the server.
    pub(crate) request_hop: Latency,
    /// Time from reading a reply to writing it to the client.
    pub(crate) reply_hop: Latency,
    /// Time from writing a command to reading its reply.
    pub(crate) server: Latency,
}

/// When the gateway started.
#[derive(Debug)]
pub(crate) struct Started(Instant);

impl Default for Started {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Started {
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

impl Metrics {
    /// Counters by name, for INFO and Prometheus.
    pub(crate) fn counters(&self) -> [(&'static str, &'static str, u64); 15] {
        [
            ("clients_accepted", "Local clients accepted", self.accepted.get()),
            ("clients_refused", "Local clients refused, because there were too many", self.refused.get()),
            (
                "clients_slow",
                "Local clients closed, because they did not read their replies",
                self.slow_readers.get(),
            ),
            ("clients_killed", "Local clients closed by CLIENT KILL", self.killed.get()),
            ("commands_shared", "Commands sent over shared connections", self.commands.get()),
            ("batches", "Batches of such commands", self.batches.get()),
            ("commands_private", "Commands sent over private connections", self.private_commands.get()),
            ("moves_to_private", "Moves of clients to private connections", self.moves.get()),
            ("commands_local", "Commands answered by the gateway", self.local_commands.get()),
            ("connects", "Connections made to servers", self.connects.get()),
            ("connect_failures", "Connects that failed", self.connect_failures.get()),
            ("connections_lost", "Connections to servers lost", self.lost.get()),
            (
                "commands_may_have_run",
                "Commands lost with their connection, answered UPSTREAMLOST",
                self.may_have_run.get(),
            ),
            ("commands_not_sent", "Commands that found no server, answered NOUPSTREAM", self.not_sent.get()),
            (
                "commands_sent_again",
                "Commands that had not been sent when a connection was lost",
                self.sent_again.get(),
            ),
        ]
    }

    pub(crate) fn latencies(&self) -> [(&'static str, Summary); 3] {
        [
            ("request", self.request_hop.summary()),
            ("reply", self.reply_hop.summary()),
            ("server", self.server.summary()),
        ]
    }
}

/// A histogram of durations from 1 ns to 60 s, with 2 significant digits.
#[derive(Debug)]
pub(crate) struct Latency(Mutex<Histogram<u64>>);

impl Default for Latency {
    fn default() -> Self {
        Self(Mutex::new(Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("valid bounds")))
    }
}

/// Quantiles of a [`Latency`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) count: u64,
    pub(crate) sum: Duration,
    pub(crate) quantiles: [(f64, Duration); 3],
}

impl Latency {
    pub(crate) fn record(&self, time: Duration, times: u32) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        lock(&self.0).saturating_record_n(nanoseconds.max(1), times.into());
    }

    fn summary(&self) -> Summary {
        let histogram = lock(&self.0);
        let quantiles =
            [0.5, 0.99, 0.999].map(|at| (at, Duration::from_nanos(histogram.value_at_quantile(at))));
        let count = histogram.len();
        let sum = Duration::from_secs_f64(histogram.mean() * count as f64 / 1e9);
        Summary { count, sum, quantiles }
    }
}
