//! The interval log of `--hdr`: the latencies of every second, written when it is over, so that a long run takes no more
//! memory than a short one.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::hdr::names;
use crate::measure::Intervals;

/// A `.hlog` file, in the format of HdrHistogram's tools; latencies in nanoseconds, tagged with their test.
#[derive(Debug)]
pub(crate) struct IntervalLog {
    path: PathBuf,
    /// Opened with the first test: an older log stays until there is a new one.
    open: Option<Open>,
    failed: Option<io::Error>,
}

#[derive(Debug)]
struct Open {
    out: BufWriter<File>,
    /// What its times count from.
    begun: Instant,
}

impl IntervalLog {
    /// A log that will be at `path`.
    pub(crate) fn new(path: PathBuf) -> IntervalLog {
        IntervalLog { path, open: None, failed: None }
    }

    /// Adds seconds of the test `title`, which began at `started`. A failure is reported by
    /// [`finish`](Self::finish), so that it does not end the test.
    pub(crate) fn append(&mut self, title: &str, started: Instant, intervals: &Intervals) {
        if self.failed.is_none() {
            self.failed = self.try_append(title, started, intervals).err();
        }
    }

    /// Whether all of it was written.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display()));
        match self.failed.take() {
            Some(error) => Err(named(error)),
            None => self.open.map_or(Ok(()), |mut open| open.out.flush()).map_err(named),
        }
    }

    fn try_append(&mut self, title: &str, started: Instant, intervals: &Intervals) -> io::Result<()> {
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(Open::new(File::create(&self.path)?, started)?),
        };
        let offset = started.saturating_duration_since(open.begun);
        let (mut serializer, name) = (V2DeflateSerializer::new(), names(title));
        let mut log = IntervalLogWriterBuilder::new().begin_log_with(&mut open.out, &mut serializer)?;
        for (second, latencies) in intervals.iter() {
            let start = offset + Duration::from_secs(second);
            log.write_histogram(latencies.histogram(), start, Duration::from_secs(1), Tag::new(&name))
                .map_err(|error| io::Error::other(format!("the interval log: {error:?}")))?;
        }
        // What is over should be there when the tool is killed.
        open.out.flush()
    }
}

impl Open {
    fn new(file: File, begun: Instant) -> io::Result<Open> {
        let mut out = BufWriter::new(file);
        IntervalLogWriterBuilder::new()
            .add_comment("[Latencies in nanoseconds, logged by valkey-rdma-benchmark]")
            .with_start_time(SystemTime::now() - begun.elapsed())
            .begin_log_with(&mut out, &mut V2DeflateSerializer::new())?;
        Ok(Open { out, begun })
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;
    use crate::measure::Tally;

    #[test]
    fn seconds_are_written_as_they_end_and_the_header_once() {
        let path = std::env::temp_dir().join(format!("intervals-{}.hlog", std::process::id()));
        let mut log = IntervalLog::new(path.clone());
        let started = Instant::now();
        let at = Duration::from_millis;
        let mut tally = Tally::new(false, 0, true);
        let mut written = Vec::new();
        for ms in [100, 900, 1500, 2500, 2600] {
            tally.arrived(at(ms), 1);
            tally.record(0, at(ms), at(ms), at(ms + 1));
            let over = tally.take_intervals(ms / 1000);
            written.extend(over.iter().map(|(second, latencies)| (second, latencies.count())));
            log.append("GET", started, &over);
        }
        assert_eq!(written, [(0, 2), (1, 1)], "the current second is not complete");
        log.append("GET", started, &tally.take_intervals(u64::MAX));
        log.append("SET", started + at(10_000), &Tally::new(false, 0, true).take_intervals(u64::MAX));
        log.finish().unwrap();

        let text = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let entries: Vec<_> = IntervalLogIterator::new(&text).map(Result::unwrap).collect();
        let starts = entries.iter().filter_map(|entry| match entry {
            LogEntry::Interval(interval) => Some(interval.start_timestamp().as_secs()),
            _ => None,
        });
        assert_eq!(starts.collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(entries.len(), 4, "and the start time");
    }
}
