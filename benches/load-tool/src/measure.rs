//! Latencies of a running test, and the figures computed from them.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::faults::Faults;

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
pub(crate) struct Latencies {
    histogram: Histogram<u64>,
}

impl Latencies {
    /// Adds a latency.
    pub(crate) fn record(&mut self, latency: Duration) {
        // In 64 bits, which hold centuries: this is done for every reply.
        self.histogram.saturating_record((latency.as_nanos() as u64).min(LONGEST_NS));
    }

    /// Number of latencies recorded.
    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that `quantile` (0.0 to 1.0) of all commands did not exceed; zero if there are none.
    pub(crate) fn quantile(&self, quantile: f64) -> Duration {
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
    pub(crate) fn min(&self) -> Duration {
        Duration::from_nanos(self.histogram.min())
    }

    /// Longest latency.
    pub(crate) fn max(&self) -> Duration {
        Duration::from_nanos(self.histogram.max())
    }

    /// Mean latency.
    pub(crate) fn mean(&self) -> Duration {
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

/// Replies over time, in steps of [`Series::STEP`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Series {
    replies: Vec<u64>,
}

impl Series {
    /// The length of a step.
    pub(crate) const STEP: Duration = Duration::from_millis(100);

    /// Adds replies that came `since_start`.
    fn add(&mut self, since_start: Duration, replies: u64) {
        // In 64 bits, as above.
        let step = (since_start.as_nanos() as u64 / Series::STEP.as_nanos() as u64) as usize;
        if step >= self.replies.len() {
            self.replies.resize(step + 1, 0);
        }
        self.replies[step] += replies;
    }

    /// Adds those of another thread, which began at the same time.
    pub(crate) fn merge(&mut self, other: &Series) {
        if other.replies.len() > self.replies.len() {
            self.replies.resize(other.replies.len(), 0);
        }
        for (sum, replies) in self.replies.iter_mut().zip(&other.replies) {
            *sum += replies;
        }
    }

    /// Adds those of a run that came after this one.
    pub(crate) fn append(&mut self, next: &Series) {
        self.replies.extend_from_slice(&next.replies);
    }

    /// Replies per second in each step.
    pub(crate) fn rates(&self) -> impl Iterator<Item = f64> + '_ {
        self.replies.iter().map(|&replies| replies as f64 / Series::STEP.as_secs_f64())
    }
}

/// The latencies of each second of a test.
#[derive(Debug, Clone, Default)]
pub(crate) struct Intervals {
    seconds: BTreeMap<u64, Latencies>,
}

impl Intervals {
    /// Adds those of another thread.
    pub(crate) fn merge(&mut self, other: Intervals) {
        for (second, latencies) in other.seconds {
            self.seconds.entry(second).or_default().merge(&latencies);
        }
    }

    /// Takes those before `second` out.
    fn take_before(&mut self, second: u64) -> Intervals {
        let rest = self.seconds.split_off(&second);
        Intervals { seconds: std::mem::replace(&mut self.seconds, rest) }
    }

    /// Each second with its latencies.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Latencies)> {
        self.seconds.iter().map(|(&second, latencies)| (second, latencies))
    }
}

/// What one thread has measured of a test. Threads do not share it, so that counting costs next to nothing. All times count
/// from the start of the test.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    /// One latency per reply, from sending its command.
    pub(crate) service: Latencies,
    /// From when the command was meant to be sent; `None` without a schedule.
    pub(crate) corrected: Option<Latencies>,
    /// Latencies of each command of a mix; empty otherwise.
    pub(crate) parts: Vec<Latencies>,
    /// Replies over time.
    pub(crate) series: Series,
    /// Latencies second by second, until they are taken; `None` if they are not recorded.
    pub(crate) intervals: Option<Intervals>,
    /// What went wrong.
    pub(crate) faults: Faults,
    /// Bytes of values sent and received.
    pub(crate) payload: u64,
    /// When the last reply came.
    pub(crate) last: Option<Duration>,
    /// Latencies of the current second, and its number.
    open: Option<(u64, Latencies)>,
}

impl Tally {
    /// An empty tally of a test whose mix has `parts` commands (0: without a mix).
    pub(crate) fn new(corrected: bool, parts: usize, intervals: bool) -> Tally {
        Tally {
            corrected: corrected.then(Latencies::default),
            parts: vec![Latencies::default(); parts],
            intervals: intervals.then(Intervals::default),
            ..Tally::default()
        }
    }

    /// A copy without the latencies of each second, which can be many.
    #[must_use]
    pub(crate) fn summary(&self) -> Tally {
        Tally {
            service: self.service.clone(),
            corrected: self.corrected.clone(),
            parts: self.parts.clone(),
            series: self.series.clone(),
            intervals: None,
            faults: self.faults.clone(),
            payload: self.payload,
            last: self.last,
            open: None,
        }
    }

    /// Notes that `replies` came at `now`.
    pub(crate) fn arrived(&mut self, now: Duration, replies: u64) {
        self.last = Some(now);
        self.series.add(now, replies);
        if self.intervals.is_some() {
            let second = now.as_secs();
            if self.open.as_ref().is_some_and(|open| open.0 != second) {
                self.close_interval();
            }
            self.open.get_or_insert_with(|| (second, Latencies::default()));
        }
    }

    /// Adds a reply to step `part`, sent at `sent` and meant to be sent at `intended`, that came at `now`.
    pub(crate) fn record(&mut self, part: usize, sent: Duration, intended: Duration, now: Duration) {
        let service = now.saturating_sub(sent);
        self.service.record(service);
        if let Some(part) = self.parts.get_mut(part) {
            part.record(service);
        }
        let mut felt = service;
        if let Some(corrected) = &mut self.corrected {
            felt = now.saturating_sub(intended);
            corrected.record(felt);
        }
        if let Some((_, open)) = &mut self.open {
            open.record(felt);
        }
    }

    /// Takes out the latencies of the seconds before `second`, which are over.
    pub(crate) fn take_intervals(&mut self, second: u64) -> Intervals {
        if self.open.as_ref().is_some_and(|open| open.0 < second) {
            self.close_interval();
        }
        self.intervals.as_mut().map_or_else(Intervals::default, |intervals| intervals.take_before(second))
    }

    fn close_interval(&mut self) {
        if let (Some(intervals), Some((second, latencies))) = (&mut self.intervals, self.open.take()) {
            intervals.seconds.entry(second).or_default().merge(&latencies);
        }
    }

    /// Adds what another thread has measured of the same test.
    pub(crate) fn merge(&mut self, mut other: Tally) {
        self.close_interval();
        other.close_interval();
        self.service.merge(&other.service);
        merge_options(&mut self.corrected, other.corrected, |all, more| all.merge(&more));
        merge_options(&mut self.intervals, other.intervals, Intervals::merge);
        if self.parts.len() < other.parts.len() {
            self.parts.resize(other.parts.len(), Latencies::default());
        }
        for (all, more) in self.parts.iter_mut().zip(&other.parts) {
            all.merge(more);
        }
        self.series.merge(&other.series);
        self.faults.merge(other.faults);
        self.payload += other.payload;
        self.last = self.last.max(other.last);
    }
}

fn merge_options<T>(all: &mut Option<T>, more: Option<T>, merge: impl FnOnce(&mut T, T)) {
    match (all.as_mut(), more) {
        (Some(all), Some(more)) => merge(all, more),
        (None, Some(more)) => *all = Some(more),
        (_, None) => {}
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

    #[test]
    fn a_late_start_counts_in_the_corrected_latency_alone() {
        let at = Duration::from_millis;
        let mut tally = Tally::new(true, 0, true);
        for (sent, intended, came) in [(0, 0, 1), (1500, 500, 1501)] {
            tally.arrived(at(came), 1);
            tally.record(0, at(sent), at(intended), at(came));
        }
        assert!(tally.service.max() < Duration::from_millis(2));
        let corrected = tally.corrected.as_ref().unwrap();
        assert!(corrected.max() >= Duration::from_millis(1000));
        assert_eq!(corrected.count_above(Duration::from_millis(500)), 1);

        let mut all = Tally::new(true, 0, true);
        all.merge(tally);
        let seconds: Vec<_> = all.intervals.unwrap().iter().map(|(second, l)| (second, l.count())).collect();
        assert_eq!(seconds, [(0, 1), (1, 1)]);
        assert_eq!(all.series.rates().filter(|&rate| rate > 0.0).count(), 2);
    }
}
