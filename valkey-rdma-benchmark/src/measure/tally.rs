//! What a running test counts: latencies, replies over time, faults.

use std::time::Duration;

use super::{Faults, Latencies};

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

/// Replies that came together, to requests that were sent together: all have the same times, and are counted at once.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    /// When the first came.
    came: Option<Duration>,
    count: u64,
    /// How many to each command of a mix; empty otherwise.
    parts: Vec<u64>,
    /// Bytes of values sent and received.
    payload: u64,
}

impl Replies {
    /// None yet, of a test whose mix has `parts` commands (0: without a mix).
    pub(crate) fn new(parts: usize) -> Replies {
        Replies { parts: vec![0; parts], ..Replies::default() }
    }

    /// Notes that one came, before it is looked at: with the first, the clock stops.
    pub(crate) fn came(&mut self, now: impl FnOnce() -> Duration) {
        self.came.get_or_insert_with(now);
    }

    /// Adds a reply to step `part`, with its bytes of values.
    pub(crate) fn add(&mut self, part: usize, payload: u64) {
        self.count += 1;
        if let Some(part) = self.parts.get_mut(part) {
            *part += 1;
        }
        self.payload += payload;
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
    /// What went wrong.
    pub(crate) faults: Faults,
    /// Bytes of values sent and received.
    pub(crate) payload: u64,
    /// When the last reply came.
    pub(crate) last: Option<Duration>,
}

impl Tally {
    /// An empty tally of a test whose mix has `parts` commands (0: without a mix).
    pub(crate) fn new(corrected: bool, parts: usize) -> Tally {
        Tally {
            corrected: corrected.then(Latencies::default),
            parts: vec![Latencies::default(); parts],
            ..Tally::default()
        }
    }

    /// Counts `replies`, if there are any, and empties them. Their commands were sent at `sent`, and meant to be sent at `intended`.
    ///
    /// Returns when they came, and how many.
    pub(crate) fn count(
        &mut self,
        replies: &mut Replies,
        sent: Duration,
        intended: Duration,
    ) -> Option<(Duration, u64)> {
        let (now, count) = (replies.came?, replies.count);
        self.last = Some(now);
        self.series.add(now, count);
        let service = now.saturating_sub(sent);
        self.service.record_all(service, count);
        for (all, part) in self.parts.iter_mut().zip(&mut replies.parts) {
            match std::mem::take(part) {
                0 => {}
                count => all.record_all(service, count),
            }
        }
        if let Some(corrected) = &mut self.corrected {
            corrected.record_all(now.saturating_sub(intended), count);
        }
        self.payload += replies.payload;
        (replies.came, replies.count, replies.payload) = (None, 0, 0);
        Some((now, count))
    }

    /// Adds what another thread has measured of the same test.
    pub(crate) fn merge(&mut self, other: Tally) {
        self.service.merge(&other.service);
        match (&mut self.corrected, other.corrected) {
            (Some(all), Some(more)) => all.merge(&more),
            (all @ None, more) => *all = more,
            (_, None) => {}
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_start_counts_in_the_corrected_latency_alone() {
        let at = Duration::from_millis;
        let mut tally = Tally::new(true, 0);
        for (sent, intended, came) in [(0, 0, 1), (1500, 500, 1501)] {
            let mut replies = Replies::new(0);
            replies.came(|| at(came));
            replies.add(0, 0);
            tally.count(&mut replies, at(sent), at(intended));
        }
        assert!(tally.service.max() < Duration::from_millis(2));
        let corrected = tally.corrected.as_ref().unwrap();
        assert!(corrected.max() >= Duration::from_millis(1000));
        assert_eq!(corrected.count_above(Duration::from_millis(500)), 1);

        let mut all = Tally::new(true, 0);
        all.merge(tally);
        assert_eq!(all.series.rates().filter(|&rate| rate > 0.0).count(), 2);
    }

    #[test]
    fn replies_that_came_together_have_one_latency_each() {
        let at = Duration::from_millis;
        let mut tally = Tally::new(false, 3);
        let mut replies = Replies::new(3);
        assert_eq!(tally.count(&mut replies, at(0), at(0)), None);
        for (came, part) in [(7, 0), (8, 2), (9, 2)] {
            replies.came(|| at(came));
            replies.add(part, 10);
        }
        assert_eq!(tally.count(&mut replies, at(5), at(5)), Some((at(7), 3)));
        assert_eq!(tally.count(&mut replies, at(5), at(5)), None, "they are counted once");
        assert_eq!(tally.parts.iter().map(Latencies::count).collect::<Vec<_>>(), [1, 0, 2]);
        assert_eq!(tally.parts[1].max(), Duration::ZERO);
        assert_eq!((tally.service.count(), tally.payload, tally.last), (3, 30, Some(at(7))));
        assert!(tally.service.min() <= at(2) && tally.service.quantile(1.0) >= at(2));
    }
}
