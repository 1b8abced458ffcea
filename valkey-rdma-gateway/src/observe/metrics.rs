//! [`Metrics`]: what a gateway counts for each of its servers. [`Services`]: those of all servers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use valkey_rdma_transport::sync::lock;

use crate::observe::seldom::Seldom;

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

/// Makes [`Metrics`], and the table of its counters: field, name, and help for Prometheus.
macro_rules! metrics {
    ($($field:ident: $name:literal, $help:literal;)*) => {
        /// Counters and latencies of the clients of one server, and of the connections to it. See [`Services`].
        #[derive(Debug, Default)]
        pub(crate) struct Metrics {
            $(#[doc = $help] pub(crate) $field: Count,)*
            /// Time from reading a command to writing it to the server.
            pub(crate) request_hop: Latency,
            /// Time from reading a reply to writing it to the client.
            pub(crate) reply_hop: Latency,
            /// Time from reading a command to reading its reply.
            pub(crate) server: Latency,
            /// Lines of the log about slots without a node.
            pub(crate) unserved: Seldom,
        }

        /// For INFO and Prometheus.
        pub(crate) const COUNTERS: &[Counter] = &[$(($name, $help, |metrics| &metrics.$field)),*];
    };
}

metrics! {
    accepted: "clients_accepted", "Local clients accepted";
    refused: "clients_refused", "Local clients refused, because there were too many";
    slow_readers: "clients_slow", "Local clients closed, because they did not read their replies";
    tls_failed: "tls_handshakes_failed", "Local clients closed, because there was no TLS connection with them";
    killed: "clients_killed", "Local clients closed by CLIENT KILL";
    commands: "commands_shared", "Commands sent over shared connections";
    batches: "batches", "Batches of such commands";
    private_commands: "commands_private", "Commands sent over private connections";
    moves: "moves_to_private", "Moves of clients to private connections";
    local_commands: "commands_local", "Commands answered by the gateway";
    direct_gets: "direct_gets", "Values written into memory of clients: direct transfers";
    direct_get_bytes: "direct_get_bytes", "Bytes of such values";
    direct_sets: "direct_sets", "Values read out of memory of clients: direct transfers";
    direct_set_bytes: "direct_set_bytes", "Bytes of such values";
    connects: "connects", "Connections made to servers";
    connect_failures: "connect_failures", "Connects that failed";
    logins_refused: "logins_refused", "Logins that a server refused, and connects without the login it requires";
    databases_refused: "databases_refused", "Databases that clients have chosen and a server refused";
    lost: "connections_lost", "Connections to servers lost";
    may_have_run: "commands_may_have_run", "Commands that were sent and have no reply, because their connection was lost";
    not_sent: "commands_not_sent", "Commands that found no server, or one that refused the connection for another reason than a login";
    commands_refused: "commands_refused", "Commands that the gateway refused: in front of a cluster";
    sent_again: "commands_sent_again", "Reads in flight when a connection was lost, sent again";
}

/// Figures by [label](crate::upstream::server::label) of the server, for as long as a backend leads to it. Backends with the same label, such as those with
/// different logins, share theirs: they would have the same labels, and a sum of theirs would shrink when one of them goes.
#[derive(Default)]
pub(crate) struct Services(Mutex<HashMap<String, Weak<Metrics>>>);

impl Services {
    pub(crate) fn metrics(&self, label: String) -> Arc<Metrics> {
        let mut known = lock(&self.0);
        known.retain(|_, metrics| metrics.strong_count() > 0);
        let metrics = known.entry(label).or_default();
        metrics.upgrade().unwrap_or_else(|| {
            let new = Arc::default();
            *metrics = Arc::downgrade(&new);
            new
        })
    }
}

/// Name, help for Prometheus, and place of a counter.
type Counter = (&'static str, &'static str, fn(&Metrics) -> &Count);

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
