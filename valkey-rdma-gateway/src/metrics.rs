//! [`Metrics`]: what a gateway counts.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// Logins that a server refused: those of connections, and those that local clients asked for.
    pub(crate) logins_refused: Count,
    pub(crate) lost: Count,
    /// Commands answered with `UPSTREAMLOST` and `NOUPSTREAM`, and commands sent again.
    pub(crate) may_have_run: Count,
    pub(crate) not_sent: Count,
    /// Commands that the gateway refused, because they cannot run in front of this server or in this share mode.
    pub(crate) commands_refused: Count,
    pub(crate) sent_again: Count,
    /// Whether the last reload failed, so that the configuration before it holds.
    pub(crate) reload_failed: AtomicBool,
    /// Time from reading a command to writing it to the server.
    pub(crate) request_hop: Latency,
    /// Time from reading a reply to writing it to the client.
    pub(crate) reply_hop: Latency,
    /// Time from reading a command to reading its reply.
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
    pub(crate) fn counters(&self) -> [(&'static str, &'static str, u64); 17] {
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
            (
                "logins_refused",
                "Logins that a server refused, and connects without the login it requires",
                self.logins_refused.get(),
            ),
            ("connections_lost", "Connections to servers lost", self.lost.get()),
            (
                "commands_may_have_run",
                "Commands lost with their connection, answered UPSTREAMLOST",
                self.may_have_run.get(),
            ),
            (
                "commands_not_sent",
                "Commands that found no server, or one that refused the connection for another reason than a login",
                self.not_sent.get(),
            ),
            (
                "commands_refused",
                "Commands that the gateway refused: in front of a cluster, or with share=always",
                self.commands_refused.get(),
            ),
            (
                "commands_sent_again",
                "Reads, and commands that had not been sent, when a connection was lost",
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

    fn summary(&self) -> Summary {
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
