//! From flags to a plan: scripts, keys, values and limits.

use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::drive::{Limit, Pace};
use crate::measure::Shape;
use crate::program::args::{Args, Instead};
use crate::program::matrix::Axis;
use crate::run::{Plan, STEP};
use crate::workload::{Keys, Script, Sizes, TestOptions, Values};

impl Plan {
    /// What the flags ask for.
    pub(crate) fn new(args: &Args) -> Result<Plan, Instead> {
        let seed = args.seed.unwrap_or_else(seed_of_now);
        let keys = match args.sequential {
            true => Keys::sequential(args.keyspace()),
            false => Keys::random(args.keyspace(), seed, args.key_dist),
        };
        let scripts = scripts(args, &keys)?;
        // As in valkey-benchmark, `-n` counts each command of a sequence, and the last sequence is sent whole.
        let commands = scripts.first().map_or(1, Script::commands_per_request).max(1) as u64;
        let plan = Plan {
            shape: shape(args, &keys),
            scripts: scripts.into_iter().map(Arc::new).collect(),
            limit: match args.duration {
                Some(time) => Limit::Time(time),
                None if args.sweep => Limit::Time(STEP),
                None => Limit::Requests(args.requests().div_ceil(commands)),
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
}

fn shape(args: &Args, keys: &Keys) -> Shape {
    Shape {
        connections: args.clients as usize,
        tasks_per_connection: args.tasks_per_connection.map(|tasks| tasks as usize),
        library: args.through.clone(),
        pipeline: args.pipeline as usize,
        threads: usize::from(args.threads.max(1)),
        runtime_threads: usize::from(args.runtime_threads),
        sizes: args.sizes.to_string(),
        keyspace: args.keyspace(),
        key_order: keys.order_text(),
        seed: keys.random_seed(),
    }
}

fn scripts(args: &Args, keys: &Keys) -> Result<Vec<Script>, Instead> {
    let options = test_options(args);
    if !args.command.is_empty() {
        let words: Vec<Vec<u8>> = args.command.iter().map(|word| word.clone().into_vec()).collect();
        let script = Script::from_words(&words, keys.len.is_some());
        let mut script = script.map_err(|error| Instead::Refuse(error.to_string()))?;
        script.title = args.command_title();
        return Ok(vec![script]);
    }
    if let Some(mix) = &args.ratio {
        return Ok(vec![mix.script(keys, &options)]);
    }
    Ok(args.chosen_tests().iter().map(|test| test.script(keys, &options)).collect())
}

fn test_options(args: &Args) -> TestOptions {
    TestOptions {
        prefix: args.key_prefix.clone(),
        functions: args.num_functions,
        fcall_keys: args.num_keys_in_fcall,
        multi_key: args.multi_key,
    }
}

/// What the tests change on the server, in one line for the user. Commands of the user's own are not examined.
fn writes(args: &Args) -> Option<String> {
    let options = test_options(args);
    let mut keys: Vec<String> = Vec::new();
    for key in args.chosen_tests().iter().filter_map(|test| test.writes(&options)) {
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
    use std::ffi::OsString;

    use super::*;
    use crate::run::SAMPLE;

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
    fn requests_count_each_command_of_a_sequence_and_the_last_sequence_is_whole() {
        for (requests, sequences) in [("10", 2), ("11", 3), ("1", 1)] {
            let line = ["tool", "-n", requests, "--", "multi", ";", "3", "incr", "k", ";", "exec"];
            let plan = Plan::new(&Args::from_command_line(line).unwrap()).unwrap();
            assert_eq!(plan.limit, Limit::Requests(sequences), "-n {requests}");
        }
    }

    #[test]
    fn the_title_of_a_command_is_what_was_typed_short_and_printable() {
        let title = |line: &[&str], read: Option<Vec<u8>>| {
            let mut args = Args::from_command_line(["tool"].iter().chain(line)).unwrap();
            args.command.extend(read.map(OsString::from_vec));
            Plan::new(&args).unwrap().scripts[0].title.clone()
        };
        let read = b"\x1b[31m".repeat(1000);
        assert_eq!(title(&["-x", "set", "k"], Some(read)), "set k <stdin>");
        assert_eq!(title(&["set", "k\x1b[2J", "v"], None), r"set k\u{1b}[2J v");
        let long = title(&["set", "k", &"v".repeat(500)], None);
        assert!(long.starts_with("set k vvv") && long.ends_with("v...") && long.len() == 103, "{long}");
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
