//! What the tasks of one thread share during a job: the schedule, and what they measure.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use valkey_rdma_transport::sync::lock;
use valkey_rdma_transport::{AnyStream, Stats};

use super::dial::Target;
use super::job::{Limit, Run};
use super::pace::{Pace, Schedule};
use super::usage::Usage;
use crate::measure::{Counters, Latencies, Tally};

/// What the tasks of one thread share during a job; the coordinator looks in.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) target: Arc<Target>,
    pub(super) tally: Mutex<Tally>,
    /// Replies so far.
    pub(super) done: AtomicU64,
    /// How long connecting anew took (`-k 0`).
    pub(super) connects: Mutex<Latencies>,
    /// The schedule, held by the connection that waits for the next arrival.
    schedule: Option<tokio::sync::Mutex<Schedule>>,
    /// Counters of connections that are gone.
    pub(super) retired: Mutex<Counters>,
    /// What the threads of blocking tasks have used of the machine.
    pub(super) usage: Mutex<Usage>,
}

impl Share {
    pub(super) fn new(target: Arc<Target>, run: &Run, number: usize, threads: usize) -> Share {
        let job = &run.job;
        let script = &job.script;
        let commands = job.pipeline * script.commands_per_request() as u64;
        let schedule = match job.pace {
            Pace::Closed => None,
            Pace::Open { rate, arrivals } => {
                Some(tokio::sync::Mutex::new(Schedule::new(rate, arrivals, commands, number, threads)))
            }
        };
        Share {
            target,
            tally: Mutex::new(Tally::new(schedule.is_some(), script.parts())),
            done: AtomicU64::new(0),
            connects: Mutex::default(),
            schedule,
            retired: Mutex::default(),
            usage: Mutex::default(),
        }
    }

    /// Draws the next requests and, with a schedule, waits until they are due: their numbers, and when they were
    /// meant to begin. `None` when there are no more.
    pub(super) async fn next(&self, run: &Run) -> Option<(Range<u64>, Option<Duration>)> {
        let Some(schedule) = &self.schedule else { return Some((run.draw()?, None)) };
        let mut schedule = schedule.lock().await;
        let intended = schedule.next();
        if run.is_over(intended) || run.is_too_late() {
            return None;
        }
        schedule.advance();
        let requests = run.draw()?;
        schedule.until(run.started + intended).await;
        if run.is_stopped() {
            return None; // A wrong reply came meanwhile.
        }
        Some((requests, Some(intended)))
    }

    /// Whether requests have their times, rather than following replies.
    pub(super) fn has_schedule(&self) -> bool {
        self.schedule.is_some()
    }

    /// Requests of the schedule that were due and not sent, when no connection is at work any more.
    pub(super) fn overdue(&self, run: &Run) -> u64 {
        let (Some(schedule), Limit::Time(end)) = (&self.schedule, run.job.limit) else { return 0 };
        schedule.try_lock().map_or(0, |schedule| schedule.left(end).saturating_mul(run.job.pipeline))
    }

    /// Counts what a connection has done that will be gone.
    pub(super) fn retire(&self, stream: &AnyStream) {
        self.retire_stats(stream.monitor().map(|monitor| monitor.stats()));
    }

    pub(super) fn retire_stats(&self, stats: impl IntoIterator<Item = Stats>) {
        for stats in stats {
            lock(&self.retired).add(Counters::from(&stats));
        }
    }
}
