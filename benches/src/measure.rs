//! Latencies of a running test, and the numbers that come out of them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

/// Shortest latency told apart from zero, in nanoseconds.
const SHORTEST_NS: u64 = 1_000;
/// Longest latency recorded as itself, in nanoseconds; longer ones count as this.
const LONGEST_NS: u64 = 60_000_000_000;
/// Significant decimal digits of every recorded latency.
const DIGITS: u8 = 3;

/// Collects the latency of every command while tasks run.
///
/// Split into shards so that threads seldom meet; a shard is far too large (about 200 KB) to have one per task.
#[derive(Debug)]
pub struct Recorder {
    shards: Box<[Mutex<Histogram<u64>>]>,
}

impl Recorder {
    /// A recorder for tasks on `threads` threads.
    pub fn new(threads: usize) -> Recorder {
        Recorder { shards: (0..threads.max(1)).map(|_| Mutex::new(empty())).collect() }
    }

    /// Adds latencies measured by task number `task`.
    pub fn record(&self, task: usize, latencies: impl IntoIterator<Item = Duration>) {
        let mut shard = self.shards[task % self.shards.len()].lock().unwrap_or_else(PoisonError::into_inner);
        for latency in latencies {
            shard.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).min(LONGEST_NS));
        }
    }

    /// All latencies so far.
    pub fn snapshot(&self) -> Latencies {
        let mut all = empty();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.add(&*shard).expect("all shards have the same bounds");
        }
        Latencies { histogram: all }
    }
}

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(SHORTEST_NS, LONGEST_NS, DIGITS).expect("the bounds are valid")
}

/// The distribution of a finished test's latencies: one per command, from sending it to the last byte of its reply.
#[derive(Debug, Clone)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Latencies {
    /// Number of latencies recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that `quantile` (0.0 to 1.0) of all commands did not exceed; zero if there are none.
    pub fn quantile(&self, quantile: f64) -> Duration {
        if self.histogram.is_empty() {
            return Duration::ZERO;
        }
        // The histogram answers with the upper end of a bucket, which can lie above the largest value.
        Duration::from_nanos(self.histogram.value_at_quantile(quantile).min(self.histogram.max()))
    }

    /// Shortest latency.
    pub fn min(&self) -> Duration {
        Duration::from_nanos(self.histogram.min())
    }

    /// Longest latency.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.histogram.max())
    }

    /// Mean latency.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.histogram.mean() as u64)
    }

    /// Adds the latencies of another run of the same test.
    pub fn merge(&mut self, other: &Latencies) {
        self.histogram.add(&other.histogram).expect("all histograms have the same bounds");
    }
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { histogram: empty() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_come_from_all_shards() {
        let recorder = Recorder::new(4);
        for micros in 1..=1000 {
            recorder.record(micros as usize, [Duration::from_micros(micros)]);
        }
        let latencies = recorder.snapshot();
        assert_eq!(latencies.count(), 1000);
        let p50 = latencies.quantile(0.5).as_nanos() as f64;
        assert!((p50 / 500_000.0 - 1.0).abs() < 0.002, "p50 was {p50} ns");
        assert!(latencies.quantile(0.999) <= latencies.max());
        assert!(latencies.min() <= latencies.mean() && latencies.mean() <= latencies.max());
    }

    #[test]
    fn no_latencies_give_zeros() {
        let latencies = Recorder::new(1).snapshot();
        assert_eq!((latencies.count(), latencies.quantile(0.99)), (0, Duration::ZERO));
        assert_eq!(latencies.mean(), Duration::ZERO);
    }

    #[test]
    fn a_latency_beyond_the_range_is_kept_as_the_longest() {
        let recorder = Recorder::new(1);
        recorder.record(0, [Duration::from_secs(3600)]);
        let latencies = recorder.snapshot();
        assert_eq!(latencies.count(), 1);
        assert!(latencies.max() >= Duration::from_secs(60));
    }
}
