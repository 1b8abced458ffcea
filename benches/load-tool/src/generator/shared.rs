//! Drives connections through the client library: many tasks share one connection.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use valkey_rdma_client::{Client, Error, ServerError, Value};

use super::commands::Commands;
use super::dial::dial_client;
use super::job::Run;
use super::lock;
use super::retry::connect_again;
use super::share::Share;
use crate::faults::{Fault, FaultKind};
use crate::reply::{Seen, WantNothing};
use crate::workload::Step;

/// A connection that tasks share, and the ones that took its place after losses.
pub(super) struct Slot {
    client: Mutex<Client>,
    /// Held while the connection is opened anew, so that one task does it.
    renewing: tokio::sync::Mutex<()>,
    /// Whether the job under way has waited for the server in vain.
    given_up: AtomicBool,
}

impl Slot {
    pub(super) fn new(client: Client) -> Slot {
        Slot {
            client: Mutex::new(client),
            renewing: tokio::sync::Mutex::new(()),
            given_up: AtomicBool::new(false),
        }
    }

    /// Makes it ready for another job, which may find the server back.
    pub(super) fn begin(&self) {
        self.given_up.store(false, Ordering::Relaxed);
    }

    pub(super) fn client(&self) -> Client {
        lock(&self.client).clone()
    }

    /// The connection, opened anew if it is lost. `None` if the job ends first.
    async fn living(&self, run: &Run, share: &Share) -> Option<Client> {
        let client = self.client();
        if !client.is_closed() {
            return Some(client);
        }
        let _renewing = self.renewing.lock().await;
        let client = self.client();
        if !client.is_closed() {
            return Some(client);
        }
        // One task waits for the server on behalf of all.
        if self.given_up.load(Ordering::Relaxed) {
            return None;
        }
        run.outages.lost();
        let Some(renewed) = connect_again(run, || dial_client(&share.target)).await else {
            self.given_up.store(true, Ordering::Relaxed);
            return None;
        };
        run.outages.back();
        // Until now it was counted with those that live.
        share.retire_stats(client.stats());
        *lock(&self.client) = renewed.clone();
        Some(renewed)
    }
}

/// Sends requests over the connection in `slot` until none is left.
pub(super) async fn work(run: Arc<Run>, share: Arc<Share>, slot: Arc<Slot>, commands: Arc<Commands>) {
    let mut task = Task { run: &run, share: &share, commands: &commands, client: slot.client() };
    loop {
        if task.client.is_closed() {
            let Some(client) = slot.living(&run, &share).await else { return };
            task.client = client;
        }
        let Some((requests, intended)) = share.next(&run).await else { return };
        task.exchange(requests, intended).await;
    }
}

struct Task<'a> {
    run: &'a Run,
    share: &'a Share,
    commands: &'a Commands,
    client: Client,
}

impl Task<'_> {
    /// Sends `requests` and waits for all their replies.
    ///
    /// Each reply is timed, checked and freed as it comes, so that the replies to a pipeline never are in memory together.
    async fn exchange(&self, requests: Range<u64>, intended: Option<Duration>) {
        let sent = self.run.now();
        let intended = intended.unwrap_or(sent);
        let job = &self.run.job;
        if requests.end - requests.start == 1 && job.script.commands_per_request() == 1 {
            let (request, step) = (requests.start, job.script.request(requests.start).start);
            let command = self.commands.command(job, request, step).into_owned();
            match self.client.execute(command).await {
                Ok(value) => self.settle(request, step, sent, intended, Ok(&value)),
                Err(Error::Server(error)) => self.settle(request, step, sent, intended, Err(&error)),
                Err(error) => self.fail(request, step, &error),
            }
            return;
        }
        self.pipeline(requests, sent, intended).await;
    }

    /// Sends the commands of all requests together: no command of another task comes between them.
    async fn pipeline(&self, requests: Range<u64>, sent: Duration, intended: Duration) {
        let job = &self.run.job;
        let in_order = || {
            requests.clone().flat_map(|request| job.script.request(request).map(move |step| (request, step)))
        };
        let mut pipeline = self.client.pipeline();
        for (request, step) in in_order() {
            pipeline.push(self.commands.command(job, request, step));
        }
        let mut waiting = in_order();
        let outcome = pipeline
            .send_each(|_, reply| {
                if let Some((request, step)) = waiting.next() {
                    self.settle(request, step, sent, intended, reply.as_ref());
                }
            })
            .await;
        if let Err(error) = outcome {
            for (request, step) in waiting {
                self.fail(request, step, &error);
            }
        }
    }

    /// Times and checks a reply that has just come.
    fn settle(
        &self,
        request: u64,
        number: usize,
        sent: Duration,
        intended: Duration,
        reply: Result<&Value, &ServerError>,
    ) {
        let now = self.run.now();
        let (job, step) = (&self.run.job, self.step(number));
        let mut seen = Seen::default();
        if step.expect.is_of_values() {
            seen.see(reply, &self.run.want(&step.template, request));
        } else {
            seen.see(reply, &WantNothing);
        }
        let mut tally = lock(&self.share.tally);
        tally.arrived(now, 1);
        tally.record(number, sent, intended, now);
        tally.payload += seen.payload + step.template.payload(&job.keys, &job.values, request);
        self.share.done.fetch_add(1, Ordering::Relaxed);
        if !step.expect.is_met(&seen) {
            tally.faults.add(step.expect.fault(&self.describe(request, number), &seen));
            self.wrong();
        }
    }

    /// Counts a request that gets no reply.
    #[cold]
    fn fail(&self, request: u64, step: usize, error: &Error) {
        let kind = match error {
            Error::Refused(_) => FaultKind::Refused,
            _ => FaultKind::ConnectionLost,
        };
        let story = format!("{}: {error}", self.describe(request, step));
        lock(&self.share.tally).faults.add(Fault { kind, story });
        self.wrong();
    }

    /// A request has not had its right reply.
    fn wrong(&self) {
        if self.run.job.fail_fast {
            self.run.stop();
        }
    }

    fn step(&self, step: usize) -> &Step {
        &self.run.job.script.steps()[step]
    }

    #[cold]
    fn describe(&self, request: u64, step: usize) -> String {
        self.step(step).describe(&self.run.job.keys, &self.run.job.values, request)
    }
}
