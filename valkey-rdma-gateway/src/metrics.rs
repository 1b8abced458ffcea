//! [`Metrics`]: what a gateway counts for each of its servers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use valkey_rdma_transport::sync::lock;

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

/// Counters and latencies of the clients of one server, and of the connections to it. See [`Services`](crate::services::Services).
#[derive(Debug, Default)]
pub(crate) struct Metrics {
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
    /// Logins that a server refused: those of connections, and those that local clients asked for.
    pub(crate) logins_refused: Count,
    pub(crate) lost: Count,
    /// Commands that the server did not answer, of clients that were closed; commands that were not sent; and commands sent again.
    pub(crate) may_have_run: Count,
    pub(crate) not_sent: Count,
    /// Commands that the gateway refused, because they cannot run in front of this server or in this share mode.
    pub(crate) commands_refused: Count,
    pub(crate) sent_again: Count,
    /// Time from reading a command to writing it to the server.
    pub(crate) request_hop: Latency,
    /// Time from reading a reply to writing it to the client.
    pub(crate) reply_hop: Latency,
    /// Time from reading a command to reading its reply.
    pub(crate) server: Latency,
}

/// Name, help for Prometheus, and place of a counter.
type Counter = (&'static str, &'static str, fn(&Metrics) -> &Count);

/// For INFO and Prometheus.
pub(crate) const COUNTERS: [Counter; 17] = [
    ("clients_accepted", "Local clients accepted", |metrics| &metrics.accepted),
    ("clients_refused", "Local clients refused, because there were too many", |metrics| &metrics.refused),
    ("clients_slow", "Local clients closed, because they did not read their replies", |metrics| {
        &metrics.slow_readers
    }),
    ("clients_killed", "Local clients closed by CLIENT KILL", |metrics| &metrics.killed),
    ("commands_shared", "Commands sent over shared connections", |metrics| &metrics.commands),
    ("batches", "Batches of such commands", |metrics| &metrics.batches),
    ("commands_private", "Commands sent over private connections", |metrics| &metrics.private_commands),
    ("moves_to_private", "Moves of clients to private connections", |metrics| &metrics.moves),
    ("commands_local", "Commands answered by the gateway", |metrics| &metrics.local_commands),
    ("connects", "Connections made to servers", |metrics| &metrics.connects),
    ("connect_failures", "Connects that failed", |metrics| &metrics.connect_failures),
    (
        "logins_refused",
        "Logins that a server refused, and connects without the login it requires",
        |metrics| &metrics.logins_refused,
    ),
    ("connections_lost", "Connections to servers lost", |metrics| &metrics.lost),
    (
        "commands_may_have_run",
        "Commands that were sent and have no reply, because their connection was lost",
        |metrics| &metrics.may_have_run,
    ),
    (
        "commands_not_sent",
        "Commands that found no server, or one that refused the connection for another reason than a login",
        |metrics| &metrics.not_sent,
    ),
    (
        "commands_refused",
        "Commands that the gateway refused: in front of a cluster, or with share=always",
        |metrics| &metrics.commands_refused,
    ),
    (
        "commands_sent_again",
        "Reads, and commands that had not been sent, when a connection was lost",
        |metrics| &metrics.sent_again,
    ),
];

/// The same of a latency.
type Part = (&'static str, &'static str, fn(&Metrics) -> &Latency);

pub(crate) const LATENCIES: [Part; 3] = [
    ("request", "Time from reading a command to writing it to the server", |metrics| &metrics.request_hop),
    ("reply", "Time from reading a reply to writing it to the client", |metrics| &metrics.reply_hop),
    ("server", "Time from reading a command to reading its reply", |metrics| &metrics.server),
];

/// Durations, from 1 ns to 60 s.
#[derive(Debug)]
pub(crate) struct Latency(Mutex<Recent>);

/// Two histograms with 2 significant digits, of which the older is replaced every [`PERIOD`]: what a gateway did yesterday says nothing
/// about now.
#[derive(Debug)]
struct Recent {
    current: Histogram<u64>,
    previous: Histogram<u64>,
    /// The end of the present period.
    until: Instant,
    /// Since the start.
    count: u64,
    sum_nanoseconds: u64,
}

/// Quantiles of a [`Latency`] over the last one to two periods, count and sum since the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) count: u64,
    pub(crate) sum: Duration,
    pub(crate) quantiles: [(f64, Duration); 3],
}

impl Default for Latency {
    fn default() -> Self {
        Self(Mutex::new(Recent::new(Instant::now())))
    }
}

impl Latency {
    /// Records what began at `begin` and has ended `now`: the caller reads the clock once for all that ends together.
    pub(crate) fn record(&self, begin: Instant, now: Instant, times: u32) {
        lock(&self.0).record(now, now.saturating_duration_since(begin), times);
    }

    pub(crate) fn summary(&self) -> Summary {
        lock(&self.0).summary(Instant::now())
    }
}

impl Recent {
    fn new(now: Instant) -> Self {
        let empty: Histogram<u64> = Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("valid bounds");
        Self { previous: empty.clone(), current: empty, until: now + PERIOD, count: 0, sum_nanoseconds: 0 }
    }

    fn record(&mut self, now: Instant, time: Duration, times: u32) {
        self.turn(now);
        let (seconds, rest) = (time.as_secs(), u64::from(time.subsec_nanos()));
        let nanoseconds = seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        self.current.saturating_record_n(nanoseconds.max(1), times.into());
        self.count += u64::from(times);
        self.sum_nanoseconds = self.sum_nanoseconds.saturating_add(nanoseconds.saturating_mul(times.into()));
    }

    fn summary(&mut self, now: Instant) -> Summary {
        self.turn(now);
        let mut both = self.previous.clone();
        both.add(&self.current).expect("the same bounds");
        let quantiles = [0.5, 0.99, 0.999].map(|at| (at, Duration::from_nanos(both.value_at_quantile(at))));
        Summary { count: self.count, sum: Duration::from_nanos(self.sum_nanoseconds), quantiles }
    }

    /// Begins another period, if the present one is over.
    fn turn(&mut self, now: Instant) {
        // Compared first: that is cheaper than the difference of two times, and happens with every reply.
        if now < self.until {
            return;
        }
        std::mem::swap(&mut self.previous, &mut self.current);
        self.current.reset();
        if now >= self.until + PERIOD {
            self.previous.reset();
        }
        self.until = now + PERIOD;
    }
}

const PERIOD: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_forget_what_was_long_ago() {
        let begin = Instant::now();
        let mut recent = Recent::new(begin);
        let (slow, quick) = (Duration::from_millis(20), Duration::from_micros(10));
        recent.record(begin, slow, 100);
        let p99 = |recent: &mut Recent, periods: u32| {
            let summary = recent.summary(begin + periods * PERIOD);
            (summary.quantiles[1].1 >= slow, summary.count)
        };
        assert_eq!(p99(&mut recent, 0), (true, 100));
        recent.record(begin + PERIOD, quick, 1);
        assert_eq!(p99(&mut recent, 1), (true, 101));
        assert_eq!(p99(&mut recent, 2), (false, 101));
        recent.record(begin + 2 * PERIOD, slow, 1);
        assert_eq!(p99(&mut recent, 9), (false, 102), "after a long time without commands too");
        assert_eq!(recent.summary(begin + 9 * PERIOD).sum, 101 * slow + quick);
    }
}
