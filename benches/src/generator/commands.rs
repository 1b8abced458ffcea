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
