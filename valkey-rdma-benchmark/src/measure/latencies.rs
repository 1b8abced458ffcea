//! A distribution of latencies.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Shortest latency that differs from zero, in nanoseconds.
const SHORTEST_NS: u64 = 1;
/// Longest latency recorded as itself, in nanoseconds; longer ones count as this.
const LONGEST_NS: u64 = 60_000_000_000;
/// Significant decimal digits of every recorded latency.
const DIGITS: u8 = 3;

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(SHORTEST_NS, LONGEST_NS, DIGITS).expect("the bounds are valid")
}

/// A distribution of latencies: one per command, to the last byte of its reply.
#[derive(Debug, Clone)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Latencies {
    /// Adds a latency.
    pub(crate) fn record(&mut self, latency: Duration) {
        self.record_all(latency, 1);
    }

    /// Adds the latency of `replies` that came together.
    pub(crate) fn record_all(&mut self, latency: Duration, replies: u64) {
        // In 64 bits, which hold centuries: this is done for most replies.
        self.histogram.saturating_record_n((latency.as_nanos() as u64).min(LONGEST_NS), replies);
    }

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

    /// Number of latencies above `limit`, within the resolution.
    #[cfg(test)]
    pub(crate) fn count_above(&self, limit: Duration) -> u64 {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).min(LONGEST_NS);
        self.count() - self.histogram.count_between(0, limit)
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
    pub(crate) fn merge(&mut self, other: &Latencies) {
        self.histogram.add(&other.histogram).expect("all histograms have the same bounds");
    }

    /// The histogram itself, in nanoseconds.
    pub(crate) fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
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
    fn quantiles_have_three_digits() {
        let mut latencies = Latencies::default();
        for micros in 1..=1000 {
            latencies.record(Duration::from_micros(micros));
        }
        assert_eq!(latencies.count(), 1000);
        let p50 = latencies.quantile(0.5).as_nanos() as f64;
        assert!((p50 / 500_000.0 - 1.0).abs() < 0.002, "p50 was {p50} ns");
        assert!(latencies.quantile(0.999) <= latencies.max());
        assert!(latencies.min() <= latencies.mean() && latencies.mean() <= latencies.max());
        assert_eq!(latencies.count_above(Duration::from_millis(2)), 0);
        assert!((495..=505).contains(&latencies.count_above(Duration::from_micros(500))));
    }

    #[test]
    fn short_latencies_have_three_digits_too() {
        for micros in [1, 5, 20] {
            let mut latencies = Latencies::default();
            latencies.record(Duration::from_micros(micros));
            let p50 = latencies.quantile(0.5).as_nanos() as f64;
            assert!((p50 / (micros * 1000) as f64 - 1.0).abs() < 0.001, "{micros} us became {p50} ns");
            assert_eq!(latencies.count_above(Duration::from_nanos(micros * 1000 - 10)), 1);
        }
    }

    #[test]
    fn no_latencies_give_zeros() {
        let latencies = Latencies::default();
        assert_eq!((latencies.count(), latencies.quantile(0.99)), (0, Duration::ZERO));
        assert_eq!(latencies.mean(), Duration::ZERO);
    }

    #[test]
    fn a_latency_beyond_the_range_is_kept_as_the_longest() {
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_secs(3600));
        assert_eq!(latencies.count(), 1);
        assert!(latencies.max() >= Duration::from_secs(60));
    }
}
