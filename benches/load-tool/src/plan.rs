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
use crate::workload::{Counts, DefaultTest, Keys, Script, Sizes, Template, Values};

/// Largest amount of values that is under way on one connection while keys are written.
const POPULATE_BYTES: usize = 1 << 20;
/// Largest number of commands that are under way on one connection while keys are written.
const POPULATE_COMMANDS: usize = 64;

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
    keys: Keys,
    values: Values,
    fail_fast: bool,
    keep_alive: bool,
}

impl Plan {
    /// How long a lost server is waited for.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// What the flags ask for. Reads standard input with `-x`.
    ///
    /// # Errors
    /// [`Instead::Refuse`] if the user's own commands are none.
    pub(crate) fn new(args: &Args) -> Result<Plan, Instead> {
        let seed = args.seed.unwrap_or_else(seed_of_now);
        let keys = match args.sequential {
            true => Keys::sequential(args.keyspace()),
            false => Keys::random(args.keyspace(), seed, args.key_dist),
        };
        let plan = Plan {
            shape: shape(args),
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
            values: Values::new(args.sizes.clone(), keys.count(), args.pool),
            keys,
            fail_fast: args.fail_fast,
            keep_alive: args.keep_alive == 1,
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
            keys: Keys::SINGLE,
            values: Values::new(sizes, 1, false),
            fail_fast: false,
            keep_alive: true,
        }
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
            intervals: false,
        }
    }

    /// Writes the keys that `script` reads; `None` if it reads none.
    pub(crate) fn population(&self, script: &Script) -> Option<Job> {
        let writer = script.writer.as_ref()?;
        let len = self.keys.len.map_or(1, NonZeroU64::get);
        let drawn = match self.limit {
            Limit::Requests(requests) => Some(requests),
            // Nobody knows how many will be read.
            Limit::Time(_) => None,
        };
        let (template, keys, requests) = match drawn {
            Some(requests) if len > requests => (writer.clone(), self.keys, requests),
            _ => (self.set(), Keys::sequential(self.keys.len), len),
        };
        let step = crate::workload::Step::new(template, crate::workload::Expect::Status("OK"));
        let pipeline = (POPULATE_BYTES / self.values.sizes().longest().max(1)).clamp(1, POPULATE_COMMANDS);
        let job = self.job(
            &Arc::new(Script::single("writing keys", step, None)),
            Limit::Requests(requests),
            Pace::Closed,
        );
        Some(Job { keys, pipeline: pipeline as u64, keep_alive: true, ..job })
    }

    /// The warm-up of a test: the same requests, for a time.
    pub(crate) fn warming_up(&self, script: &Arc<Script>, time: Duration) -> Job {
        let numbers = match self.limit {
            Limit::Requests(requests) => Some(requests),
            Limit::Time(_) => None,
        };
        Job { numbers, ..self.job(script, Limit::Time(time), self.pace) }
    }

    fn set(&self) -> Template {
        Template::new(&["SET", "key:__rand_int__", "__data__"], self.keys.len.is_some())
    }

    /// Whether a test of `script` that was right has just written what `next` reads.
    pub(crate) fn has_written(&self, script: &Script, next: &Script) -> bool {
        matches!(self.limit, Limit::Requests(_))
            && next.writer.as_ref().is_some_and(|writer| script.is_of(writer))
    }
}

fn shape(args: &Args) -> Shape {
    Shape {
        connections: args.clients as usize,
        tasks_per_connection: args.tasks_per_connection.map(|tasks| tasks as usize),
        pipeline: args.pipeline as usize,
        threads: usize::from(args.threads.max(1)),
        sizes: args.sizes.to_string(),
        keyspace: args.keyspace(),
    }
}

fn scripts(args: &Args, keys: &Keys) -> Result<Vec<Script>, Instead> {
    let counts = Counts {
        functions: args.num_functions,
        fcall_keys: args.num_keys_in_fcall,
        multi_key: args.multi_key,
    };
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
        return Ok(vec![mix.script(keys, counts)]);
    }
    let mut tests = match &args.tests {
        Some(Selection::Tests(tests)) => tests.clone(),
        _ => DefaultTest::all(),
    };
    if args.tasks_per_connection.is_some()
        || args.matrix.as_ref().is_some_and(crate::matrix::Matrix::has_tasks)
    {
        tests = DefaultTest::without_inline(&tests);
    }
    Ok(tests.iter().map(|test| test.script(keys, counts)).collect())
}

fn seed_of_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_writes_every_key_that_it_may_read() {
        let line = ["tool", "--sweep", "-t", "get", "-r", "1000000"];
        let plan = Plan::new(&Args::from_command_line(line).unwrap()).unwrap();
        let job = plan.population(&plan.scripts[0]).unwrap();
        assert_eq!(job.limit, Limit::Requests(1_000_000));
    }
}
