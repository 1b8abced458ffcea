//! A job's commands for the client library, built no more often than needed.

use std::borrow::Cow;

use valkey_rdma_client::Command;

use super::job::Job;

/// Commands by step of the script: those that are the same for every request, built once.
///
/// An application builds its commands too, but what is measured here is their way to the server and back.
#[derive(Debug)]
pub(super) struct Commands {
    built: Vec<Option<Command>>,
}

impl Commands {
    /// Builds what can be built beforehand.
    pub(super) fn new(job: &Job) -> Commands {
        let steps = job.script.steps().iter();
        // Without a number to draw, requests do not differ.
        let built = steps.map(|step| {
            step.template.slots().is_empty().then(|| step.template.command(&job.keys, &job.values, 0))
        });
        Commands { built: built.collect() }
    }

    /// The command of step `step` of request `request`, of the same job.
    pub(super) fn command(&self, job: &Job, request: u64, step: usize) -> Cow<'_, Command> {
        match &self.built[step] {
            Some(command) => Cow::Borrowed(command),
            None => Cow::Owned(job.script.steps()[step].template.command(&job.keys, &job.values, request)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::generator::{Limit, Pace, Verify};
    use crate::workload::{Expect, Keys, Script, Sizes, Step, Template, Values};

    fn job(keys: Keys, steps: &[&[&str]]) -> Job {
        let steps =
            steps.iter().map(|args| Step::new(Template::new(args, keys.len.is_some()), Expect::Anything));
        Job {
            script: Arc::new(Script::mixed("a mix", steps.map(|step| (step, 1)).collect(), None)),
            keys,
            values: Values::new(Sizes::fixed(3), keys.count(), false),
            limit: Limit::Requests(1),
            numbers: None,
            pipeline: 1,
            pace: Pace::Closed,
            verify: Verify::Full,
            fail_fast: false,
            keep_alive: true,
            patience: Duration::ZERO,
            reply_timeout: None,
            intervals: false,
        }
    }

    #[test]
    fn only_commands_that_differ_are_built_for_each_request() {
        let steps: &[&[&str]] = &[&["SET", "key", "__data__"], &["GET", "key:__rand_int__"]];
        let built_before = |keys| {
            let job = job(keys, steps);
            let commands = Commands::new(&job);
            [0, 1].map(|step| matches!(commands.command(&job, 7, step), Cow::Borrowed(_)))
        };
        assert_eq!(built_before(Keys::SINGLE), [true, true]);
        assert_eq!(built_before(Keys::sequential(NonZeroU64::new(10))), [true, false]);
    }
}
