//! What is run: scripts, keys, values, and when each test ends.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::drive::{Job, Limit, Pace, Verify};
use crate::measure::Shape;
use crate::workload::{Expect, Keys, Populate, Script, Sizes, Step, Template, Values};

/// Bytes of values that are in flight on one connection while keys are written.
const POPULATE_BYTES: usize = 1 << 20;
/// Commands that are in flight on one connection while keys are written.
const POPULATE_COMMANDS: usize = 64;
/// Requests that are sent to see whether the keys of a test exist.
pub(crate) const SAMPLE: u64 = 100;

/// How long a sweep tries each rate unless `--duration` is given.
pub(crate) const STEP: Duration = Duration::from_secs(2);

/// Everything about a run but the server.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// How requests are arranged.
    pub(crate) shape: Shape,
    /// The tests.
    pub(crate) scripts: Vec<Arc<Script>>,
    /// When each test ends.
    pub(crate) limit: Limit,
    /// How long each test runs before anything is recorded.
    pub(crate) warmup: Option<Duration>,
    /// When requests begin.
    pub(crate) pace: Pace,
    /// What is checked.
    pub(crate) verify: Verify,
    /// What is written before a test that reads keys.
    pub(crate) populate: Populate,
    /// What the tests change on the server, for the user to read before they do.
    pub(crate) writes: Option<String>,
    /// What the names of the keys begin with.
    pub(crate) prefix: String,
    /// Which keys are used.
    pub(crate) keys: Keys,
    /// The values that are written.
    pub(crate) values: Values,
    /// Whether the first wrong reply ends a test.
    pub(crate) fail_fast: bool,
    /// Whether connections are kept from one request to the next.
    pub(crate) keep_alive: bool,
    /// How long connections wait for a reply; `None` for ever.
    pub(crate) reply_timeout: Option<Duration>,
}

/// What has to be done before a test that reads keys.
#[derive(Debug, Clone)]
pub(crate) struct Population {
    /// Writes the keys, or looks a few of them up.
    pub(crate) job: Job,
    /// What to report before the job starts.
    pub(crate) notice: Option<String>,
}

impl Plan {
    /// How long connections wait for a reply unless something else is said.
    pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

    /// How long the tool tries to reach a lost server again.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A plan of some scripts, for comparisons of our own.
    pub(crate) fn of(shape: Shape, scripts: Vec<Script>, sizes: Sizes, limit: Limit) -> Plan {
        Plan {
            shape,
            scripts: scripts.into_iter().map(Arc::new).collect(),
            limit,
            warmup: None,
            pace: Pace::Closed,
            verify: Verify::Full,
            populate: Populate::All,
            writes: None,
            prefix: String::new(),
            keys: Keys::SINGLE,
            values: Values::new(sizes, 1, false),
            fail_fast: false,
            keep_alive: true,
            reply_timeout: Some(Plan::REPLY_TIMEOUT),
        }
    }

    /// A test as planned, or with another end or pace.
    pub(crate) fn job(&self, script: &Arc<Script>, limit: Limit, pace: Pace) -> Job {
        Job {
            script: Arc::clone(script),
            keys: self.keys,
            values: self.values.clone(),
            limit,
            numbers: None,
            pipeline: self.shape.pipeline as u64,
            pace,
            verify: self.verify,
            fail_fast: self.fail_fast,
            keep_alive: self.keep_alive,
            patience: Plan::PATIENCE,
            reply_timeout: self.reply_timeout,
        }
    }

    /// Writes the keys that `script` reads, or makes sure that they exist. `None` if it reads none.
    pub(crate) fn population(&self, script: &Arc<Script>) -> Option<Population> {
        let writer = script.writer.as_ref()?;
        if self.populate == Populate::None {
            let requests = match self.limit {
                Limit::Requests(requests) => requests.min(SAMPLE),
                Limit::Time(_) => SAMPLE,
            };
            let job = self.job(script, Limit::Requests(requests), Pace::Closed);
            return Some(Population { job: Job { keep_alive: true, ..job }, notice: None });
        }
        let len = self.keys.len.map_or(1, NonZeroU64::get);
        let drawn = match self.limit {
            Limit::Requests(requests) => Some(requests),
            // The number of requests is not known beforehand.
            Limit::Time(_) => None,
        };
        let one_key = writer.slots().len() <= 1;
        let (template, keys, requests, count) = match drawn {
            Some(requests) if len > requests && (one_key || self.populate == Populate::All) => {
                let count = requests.saturating_mul(writer.slots().len() as u64).min(len);
                let writer = if self.populate == Populate::All { writer.clone() } else { self.set() };
                (writer, self.keys, requests, count)
            }
            _ => (self.set(), Keys::sequential(self.keys.len), len, len),
        };
        let (expect, which) = match self.populate {
            Populate::All => (Expect::Status("OK"), "writes"),
            _ => (Expect::StatusOrNil("OK"), "writes the missing ones of"),
        };
        let longest = self.values.sizes().longest();
        let notice = format!(
            "{}: --populate {which} {count} keys first, with values of at most {longest} bytes",
            script.title
        );
        let pipeline = (POPULATE_BYTES / longest.max(1)).clamp(1, POPULATE_COMMANDS);
        let job = self.job(
            &Arc::new(Script::single("writing keys", Step::new(template, expect), None)),
            Limit::Requests(requests),
            Pace::Closed,
        );
        let job = Job { keys, pipeline: pipeline as u64, keep_alive: true, ..job };
        Some(Population { job, notice: Some(notice) })
    }

    /// The warm-up of a test: the same requests, for a time.
    pub(crate) fn warming_up(&self, script: &Arc<Script>, time: Duration, written: Option<u64>) -> Job {
        let numbers = match self.limit {
            Limit::Requests(requests) => Some(requests),
            Limit::Time(_) => written,
        };
        Job { numbers, ..self.job(script, Limit::Time(time), self.pace) }
    }

    fn set(&self) -> Template {
        let key = format!("{}key:__rand_int__", self.prefix);
        let words: &[&str] = match self.populate {
            Populate::Missing => &["SET", &key, "__data__", "NX"],
            _ => &["SET", &key, "__data__"],
        };
        Template::new(words, self.keys.len.is_some())
    }
}
