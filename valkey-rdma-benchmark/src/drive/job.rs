//! One test to run, and what its connections share while it runs.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::pace::Pace;
use crate::check::{Want, Wanted};
use crate::measure::Outages;
use crate::workload::{Keys, Script, Template, Values};

/// How much of a reply is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Verify {
    /// Type and length
    Length,
    /// Every byte too
    Full,
}

/// When a job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// After this number of requests.
    Requests(u64),
    /// After this time.
    Time(Duration),
}

/// How long requests of a schedule are still sent when their time is over: as long again as the job, this at most.
const CATCHING_UP: Duration = Duration::from_secs(10);

/// One test to run.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// The commands.
    pub(crate) script: Arc<Script>,
    /// The numbers in their placeholders.
    pub(crate) keys: Keys,
    /// The values.
    pub(crate) values: Values,
    /// The end.
    pub(crate) limit: Limit,
    /// Requests are numbered below this, over and over: those whose keys were written. `None`: without end.
    pub(crate) numbers: Option<u64>,
    /// Requests that are sent before the first reply is awaited.
    pub(crate) pipeline: u64,
    /// When requests begin.
    pub(crate) pace: Pace,
    /// What is checked.
    pub(crate) verify: Verify,
    /// Whether the first wrong reply ends the job.
    pub(crate) fail_fast: bool,
    /// Whether connections live on after each pipeline; else they are opened anew (`-k 0`).
    pub(crate) keep_alive: bool,
    /// How long a lost server is waited for before the job ends.
    pub(crate) patience: Duration,
    /// How long a connection waits for a reply before it is given up; `None` for ever.
    pub(crate) reply_timeout: Option<Duration>,
}

/// A job that is running.
#[derive(Debug)]
pub(crate) struct Run {
    /// What is run.
    pub(crate) job: Job,
    /// When it began: all times of a job count from here.
    pub(crate) started: Instant,
    /// The number of the next request.
    issued: AtomicU64,
    stop: AtomicBool,
    gave_up: AtomicBool,
    /// When a reply arrived last on any connection, in milliseconds from the start.
    last_reply: AtomicU64,
    /// When no connection was up.
    pub(crate) outages: Outages,
}

impl Run {
    /// A job that starts now.
    pub(crate) fn new(job: Job, connections: usize) -> Run {
        let started = Instant::now();
        Run {
            job,
            started,
            issued: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            gave_up: AtomicBool::new(false),
            last_reply: AtomicU64::new(0),
            outages: Outages::new(started, connections),
        }
    }

    /// Draws the next requests, a pipeline of them at most; `None` when there are no more.
    pub(super) fn draw(&self) -> Option<Range<u64>> {
        // On a schedule the intended time decides, so that what is due is sent however late.
        let limited = self.job.pace == Pace::Closed && matches!(self.job.limit, Limit::Time(_));
        if self.is_stopped() || limited && self.is_over(self.now()) {
            return None;
        }
        let first = self.issued.fetch_add(self.job.pipeline, Ordering::Relaxed);
        let end = first.saturating_add(self.job.pipeline);
        let end = match self.job.limit {
            Limit::Requests(requests) => end.min(requests),
            Limit::Time(_) => end,
        };
        if first >= end {
            return None;
        }
        let Some(numbers) = self.job.numbers else { return Some(first..end) };
        let numbers = numbers.max(1);
        let begin = first % numbers;
        Some(begin..(begin + (end - first)).min(numbers))
    }

    /// How long it has been running.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether no further request may begin at `now`.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.stop.load(Ordering::Relaxed) || matches!(self.job.limit, Limit::Time(limit) if now >= limit)
    }

    /// Whether a schedule's time was over so long ago that what is still due is not sent any more.
    pub(super) fn is_too_late(&self) -> bool {
        matches!(self.job.limit, Limit::Time(limit) if self.now() >= limit + limit.min(CATCHING_UP))
    }

    /// How long replies are waited for that a timed job still lacks at its end: never shorter than a connection waits; `None` for ever.
    pub(super) fn last_wait(&self) -> Option<Duration> {
        Some(self.job.reply_timeout?.max(self.job.patience))
    }

    /// Waits until replies that a timed job still lacks have been waited for long enough; forever without a time.
    pub(super) async fn no_more_replies(&self) {
        match (self.job.limit, self.last_wait()) {
            (Limit::Time(limit), Some(wait)) => {
                let end = self.started + limit + limit.min(CATCHING_UP) + wait;
                tokio::time::sleep_until(end.into()).await;
            }
            (Limit::Requests(_), _) | (_, None) => std::future::pending().await,
        }
    }

    /// Progress of the job after `replies`, from 0 to 1.
    pub(super) fn progress(&self, replies: u64) -> f64 {
        let share = match self.job.limit {
            Limit::Requests(requests) => {
                replies as f64 / (requests as f64 * self.job.script.commands_per_request() as f64)
            }
            Limit::Time(limit) => self.now().as_secs_f64() / limit.as_secs_f64(),
        };
        share.clamp(0.0, 1.0)
    }

    /// Whether [`stop`](Self::stop) was called.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Lets no further request begin.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Notes that a connection did not come back within the job's patience.
    pub(super) fn give_up(&self) {
        self.gave_up.store(true, Ordering::Relaxed);
    }

    /// Whether the server stayed away for longer than the job's patience.
    pub(super) fn gave_up(&self) -> bool {
        self.gave_up.load(Ordering::Relaxed)
    }

    /// Notes that a reply arrived at `now`.
    pub(super) fn replied(&self, now: Duration) {
        let now = millis(now);
        // Most replies arrive within the same millisecond: a shared cache line is written only once for them.
        if self.last_reply.load(Ordering::Relaxed) < now {
            self.last_reply.store(now, Ordering::Relaxed);
        }
    }

    /// A connection has had no reply for `limit`. Ends the job if no other connection had one either.
    pub(super) fn no_reply(&self, limit: Duration) {
        let silent = millis(self.now()).saturating_sub(self.last_reply.load(Ordering::Relaxed));
        if silent >= millis(limit) || self.job.fail_fast {
            self.give_up();
            self.stop();
        }
    }

    /// Requests that were not drawn; none if time was the limit.
    pub(crate) fn left(&self) -> u64 {
        match self.job.limit {
            Limit::Requests(requests) => requests.saturating_sub(self.issued.load(Ordering::Relaxed)),
            Limit::Time(_) => 0,
        }
    }

    /// Whether the job ends without the server: every request was drawn.
    pub(super) fn is_drained(&self) -> bool {
        matches!(self.job.limit, Limit::Requests(_)) && self.left() == 0
    }

    /// What the strings in the reply to `request` must be, if `template` is a command that reads values.
    pub(super) fn want<'a>(&'a self, template: &'a Template, request: u64) -> ValuesOf<'a> {
        ValuesOf { job: &self.job, template, request }
    }
}

fn millis(time: Duration) -> u64 {
    time.as_secs() * 1000 + u64::from(time.subsec_millis())
}

/// The values of the keys that a command names.
pub(super) struct ValuesOf<'a> {
    job: &'a Job,
    template: &'a Template,
    request: u64,
}

impl Want for ValuesOf<'_> {
    fn string(&self, element: usize) -> Option<Wanted<'_>> {
        let key = self.template.number(&self.job.keys, self.request, element);
        Some(match self.job.verify {
            Verify::Length => Wanted::Len(self.job.values.len_of(key)),
            Verify::Full => Wanted::Bytes(self.job.values.of(key)),
        })
    }
}
