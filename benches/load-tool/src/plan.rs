//! From flags to what is run: scripts, keys, values and limits.

use std::io::Read;
use std::num::NonZeroU64;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::args::{Args, Instead, Selection};
use crate::generator::{Job, Limit, Pace, Verify};
use crate::matrix::Axis;
use crate::result::Shape;
use crate::workload::{
    DefaultTest, Expect, Keys, Populate, Script, Sizes, Step, Template, TestOptions, Values,
};

/// Bytes of values that are in flight on one connection while keys are written.
const POPULATE_BYTES: usize = 1 << 20;
/// Commands that are in flight on one connection while keys are written.
const POPULATE_COMMANDS: usize = 64;
/// Requests that are sent to see whether the keys of a test exist.
const SAMPLE: u64 = 100;

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
    prefix: String,
    keys: Keys,
    values: Values,
    fail_fast: bool,
    keep_alive: bool,
    reply_timeout: Option<Duration>,
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
    /// How long the tool tries to reach a lost server again.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// What the flags ask for. Reads standard input with `-x`.
    pub(crate) fn new(args: &Args) -> Result<Plan, Instead> {
        let seed = args.seed.unwrap_or_else(seed_of_now);
        let keys = match args.sequential {
            true => Keys::sequential(args.keyspace()),
            false => Keys::random(args.keyspace(), seed, args.key_dist),
        };
        let plan = Plan {
            shape: shape(args, &keys),
            scripts: scripts(args, &keys)?.into_iter().map(Arc::new).collect(),
            limit: match args.duration {
                Some(time) => Limit::Time(time),
                None if args.sweep => Limit::Time(STEP),
                None => Limit::Requests(args.requests()),
            },
            warmup: args.warmup,
            pace: match args.rps {
                0.0 => Pace::Closed,
                rate => Pace::Open { rate, arrivals: args.arrivals },
            },
            verify: args.verify,
            populate: args.populate,
            writes: writes(args),
            prefix: args.key_prefix.clone(),
            values: Values::new(args.sizes.clone(), keys.count(), args.pool),
            keys,
            fail_fast: args.fail_fast,
            keep_alive: args.keep_alive == 1,
            reply_timeout: args.reply_timeout(),
        };
        Ok(plan)
    }

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
            reply_timeout: Some(Args::REPLY_TIMEOUT),
        }
    }

    /// How long connections wait for a reply; `None` for ever.
    pub(crate) fn reply_timeout(&self) -> Option<Duration> {
        self.reply_timeout
    }

    /// Whether the first wrong reply ends a test.
    pub(crate) fn fail_fast(&self) -> bool {
        self.fail_fast
    }

    /// This plan at one point of a matrix.
    #[must_use]
    pub(crate) fn at(&self, point: &[(Axis, u64)]) -> Plan {
        let mut plan = self.clone();
        for &(axis, value) in point {
            let count = value as usize;
            match axis {
                Axis::Connections => plan.shape.connections = count,
                Axis::Pipeline => plan.shape.pipeline = count,
                Axis::Threads => plan.shape.threads = count,
                Axis::Tasks => plan.shape.tasks_per_connection = (count > 0).then_some(count),
                Axis::Size => {
                    plan.shape.sizes = value.to_string();
                    plan.values =
                        Values::new(Sizes::fixed(value), plan.keys.count(), plan.values.are_pooled());
                }
                // The target's, not the plan's.
                Axis::RxSize => {}
            }
        }
        plan
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
            intervals: false,
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

fn shape(args: &Args, keys: &Keys) -> Shape {
    Shape {
        connections: args.clients as usize,
        tasks_per_connection: args.tasks_per_connection.map(|tasks| tasks as usize),
        pipeline: args.pipeline as usize,
        threads: usize::from(args.threads.max(1)),
        sizes: args.sizes.to_string(),
        keyspace: args.keyspace(),
        key_order: keys.order_text(),
        seed: keys.random_seed(),
    }
}

fn scripts(args: &Args, keys: &Keys) -> Result<Vec<Script>, Instead> {
    let options = test_options(args);
    if !args.command.is_empty() {
        let mut words: Vec<Vec<u8>> = args.command.iter().map(|word| word.clone().into_vec()).collect();
        if args.stdin {
            let mut last = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut last);
            read.map_err(|error| Instead::Refuse(format!("-x: standard input cannot be read: {error}")))?;
            words.push(last);
        }
        let script = Script::from_words(&words, keys.len.is_some());
        return Ok(vec![script.map_err(|error| Instead::Refuse(error.to_string()))?]);
    }
    if let Some(mix) = &args.ratio {
        return Ok(vec![mix.script(keys, &options)]);
    }
    Ok(tests(args).iter().map(|test| test.script(keys, &options)).collect())
}

fn test_options(args: &Args) -> TestOptions {
    TestOptions {
        prefix: args.key_prefix.clone(),
        functions: args.num_functions,
        fcall_keys: args.num_keys_in_fcall,
        multi_key: args.multi_key,
    }
}

/// The default tests that run, if no command and no mix is given.
fn tests(args: &Args) -> Vec<DefaultTest> {
    let tests = match &args.tests {
        Some(Selection::Tests(tests)) => tests.clone(),
        _ => DefaultTest::all(),
    };
    let shared = args.tasks_per_connection.is_some()
        || args.matrix.as_ref().is_some_and(crate::matrix::Matrix::has_tasks);
    if shared { DefaultTest::without_inline(&tests) } else { tests }
}

/// What the tests change on the server, in one line for the user. Commands of the user's own are not examined.
fn writes(args: &Args) -> Option<String> {
    if !args.command.is_empty() {
        return None;
    }
    let options = test_options(args);
    let tests = args.ratio.as_ref().map_or_else(|| tests(args), |mix| mix.tests().copied().collect());
    let mut keys: Vec<String> = Vec::new();
    for key in tests.iter().filter_map(|test| test.writes(&options)) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    (!keys.is_empty())
        .then(|| format!("note: writes {}; --key-prefix gives its keys other names", keys.join(", ")))
}

fn seed_of_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_writes_every_key_that_it_may_read() {
        let line = ["tool", "--sweep", "-t", "get", "-r", "1000000", "--populate", "all"];
        let plan = Plan::new(&Args::from_command_line(line).unwrap()).unwrap();
        let population = plan.population(&plan.scripts[0]).unwrap();
        assert_eq!(population.job.limit, Limit::Requests(1_000_000));
        assert!(population.notice.unwrap().contains("writes 1000000 keys first"));
    }

    #[test]
    fn the_seed_is_reported_if_keys_depend_on_it() {
        let seed = |flags: &[&str]| {
            let line = ["tool"].iter().chain(flags);
            Plan::new(&Args::from_command_line(line).unwrap()).unwrap().shape.seed
        };
        assert_eq!(seed(&["-r", "10", "--seed", "7"]), Some(7));
        assert!(seed(&["-r", "10"]).is_some(), "the one that the clock gave");
        assert_eq!(seed(&["-r", "10", "--sequential"]), None);
        assert_eq!(seed(&["--seed", "7"]), None, "one key");
    }

    #[test]
    fn by_default_a_reading_test_writes_nothing() {
        let line = ["tool", "-t", "get", "-r", "1000000000", "--duration", "10"];
        let plan = Plan::new(&Args::from_command_line(line).unwrap()).unwrap();
        let population = plan.population(&plan.scripts[0]).unwrap();
        assert_eq!(population.job.limit, Limit::Requests(SAMPLE));
        assert!(Arc::ptr_eq(&population.job.script, &plan.scripts[0]), "it only reads");
    }
}
