//! Drives connections through the client library: many tasks share one connection.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use valkey_rdma_client::{Client, Error, Purpose, ServerError, Value};
use valkey_rdma_transport::Stats;
use valkey_rdma_transport::sync::lock;

use super::commands::Commands;
use super::dial::dial_caller;
use super::job::Run;
use super::reply_timer::{NoReply, ReplyTimer};
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
    /// Whether the current job has given up the server.
    given_up: AtomicBool,
    /// Counts the connections that were opened here.
    generation: AtomicU64,
    /// The generation that must not be used any more, because replies do not arrive on it.
    silent: AtomicU64,
    opened: Instant,
    /// When the last reply arrived, for any task, in nanoseconds after `opened`.
    progress: AtomicU64,
}

impl Slot {
    pub(super) fn new(client: Client) -> Slot {
        Slot {
            client: Mutex::new(client),
            renewing: tokio::sync::Mutex::new(()),
            opened: Instant::now(),
            progress: AtomicU64::new(0),
            given_up: AtomicBool::new(false),
            generation: AtomicU64::new(1),
            silent: AtomicU64::new(0),
        }
    }

    /// Makes it ready for another job, which may find the server back.
    pub(super) fn begin(&self) {
        self.given_up.store(false, Ordering::Relaxed);
    }

    pub(super) fn client(&self) -> Client {
        lock(&self.client).clone()
    }

    /// Whether connection `generation` may be used.
    fn is_usable(&self, client: &Client, generation: u64) -> bool {
        !client.is_closed() && self.silent.load(Ordering::Relaxed) < generation
    }

    /// Lets no task use connection `generation` any more.
    fn give_up(&self, generation: u64) {
        self.silent.fetch_max(generation, Ordering::Relaxed);
    }

    fn current(&self) -> (Client, u64) {
        let client = lock(&self.client);
        (client.clone(), self.generation.load(Ordering::Relaxed))
    }

    /// The connection and its generation, opened anew if it is lost. `None` if the job ends first.
    async fn living(&self, run: &Run, share: &Share) -> Option<(Client, u64)> {
        let (client, generation) = self.current();
        if self.is_usable(&client, generation) {
            return Some((client, generation));
        }
        let _renewing = self.renewing.lock().await;
        let (client, generation) = self.current();
        if self.is_usable(&client, generation) {
            return Some((client, generation));
        }
        // One task waits for the server on behalf of all.
        if self.given_up.load(Ordering::Relaxed) {
            return None;
        }
        run.outages.lost();
        let Some(renewed) = connect_again(run, || dial_caller(&share.target)).await else {
            self.given_up.store(true, Ordering::Relaxed);
            return None;
        };
        run.outages.back();
        // Until now it was counted with those that live.
        share.retire_stats(stats(&client));
        let mut client = lock(&self.client);
        *client = renewed.clone();
        let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
        Some((renewed, generation))
    }
}

/// Sends requests over the connection in `slot` until none is left.
pub(super) async fn work(run: Arc<Run>, share: Arc<Share>, slot: Arc<Slot>, commands: Arc<Commands>) {
    let (client, mut generation) = slot.current();
    let mut task = Task { run: &run, share: &share, slot: &slot, commands: &commands, client };
    let mut timer = ReplyTimer::new(run.job.reply_timeout);
    loop {
        if !slot.is_usable(&task.client, generation) {
            let Some(living) = slot.living(&run, &share).await else { return };
            (task.client, generation) = living;
        }
        let Some((requests, intended)) = share.next(&run).await else { return };
        if let Err(NoReply(limit)) = task.exchange(requests, intended, &mut timer).await {
            slot.give_up(generation);
            run.no_reply(limit);
        }
    }
}

/// The transport's counters of each shared connection that has them.
pub(super) fn stats(client: &Client) -> Vec<Stats> {
    let shared = client.connections().into_iter().filter(|connection| connection.purpose == Purpose::Shared);
    shared.filter_map(|connection| connection.stats).collect()
}

struct Task<'a> {
    run: &'a Run,
    share: &'a Share,
    slot: &'a Slot,
    commands: &'a Commands,
    client: Client,
}

impl Task<'_> {
    /// Sends `requests` and waits for all their replies.
    ///
    /// Each reply is timed, checked and freed as it comes, so that the replies to a pipeline never are in memory together.
    /// Requests without a reply are counted as such.
    async fn exchange(
        &self,
        requests: Range<u64>,
        intended: Option<Duration>,
        timer: &mut ReplyTimer,
    ) -> Result<(), NoReply> {
        let sent = self.run.now();
        let intended = intended.unwrap_or(sent);
        // A task that sends again has its last reply.
        self.progress(sent);
        let job = &self.run.job;
        if requests.end - requests.start == 1 && job.script.commands_per_request() == 1 {
            let (request, step) = (requests.start, job.script.request(requests.start).start);
            let command = self.commands.command(job, request, step).into_owned();
            match timer.wait(|| self.last_progress(), self.client.command(command)).await {
                Ok(outcome) => self.answered(request, step, sent, intended, outcome),
                Err(silent) => {
                    self.silent(request, step, silent, 1);
                    return Err(silent);
                }
            }
            return Ok(());
        }
        self.pipeline(requests, sent, intended, timer).await
    }

    /// Sends the commands of all requests together: no command of another task comes between them.
    async fn pipeline(
        &self,
        requests: Range<u64>,
        sent: Duration,
        intended: Duration,
        timer: &mut ReplyTimer,
    ) -> Result<(), NoReply> {
        let job = &self.run.job;
        let in_order = || {
            requests.clone().flat_map(|request| job.script.request(request).map(move |step| (request, step)))
        };
        let mut waiting = in_order();
        let sending = async {
            let mut pipeline = self.client.pipeline();
            for (request, step) in in_order() {
                pipeline.push(&*self.commands.command(job, request, step));
            }
            // In a cluster, all replies count as arrived with the last.
            let each = |_, outcome: Result<Value, Error>| {
                if let Some((request, step)) = waiting.next() {
                    self.answered(request, step, sent, intended, outcome);
                    self.progress(self.run.now());
                }
            };
            pipeline.send_each(each).await
        };
        match timer.wait(|| self.last_progress(), sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                waiting.for_each(|(request, step)| self.fail(request, step, &error));
                Ok(())
            }
            Err(silent) => {
                if let Some((request, step)) = waiting.next() {
                    self.silent(request, step, silent, 1 + waiting.count() as u64);
                }
                Err(silent)
            }
        }
    }

    /// A reply has arrived on the connection at this time of the run.
    fn progress(&self, at: Duration) {
        let at = (self.run.started + at).saturating_duration_since(self.slot.opened);
        let nanos = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        self.slot.progress.fetch_max(nanos, Ordering::Relaxed);
    }

    /// When the connection's last reply arrived, for any task: large replies for other tasks delay a reply although the
    /// server is alive.
    fn last_progress(&self) -> Instant {
        self.slot.opened + Duration::from_nanos(self.slot.progress.load(Ordering::Relaxed))
    }

    /// Counts requests without a reply, the oldest of which is `request`.
    #[cold]
    fn silent(&self, request: u64, step: usize, silent: NoReply, outstanding: u64) {
        let detail = format!(
            "{}: {silent}; {} more replies of its pipeline are outstanding",
            self.describe(request, step),
            outstanding - 1
        );
        let fault = Fault { kind: FaultKind::NoReply, detail };
        lock(&self.share.tally).faults.add_many(fault, outstanding);
    }

    /// Takes the outcome of a command.
    fn answered(
        &self,
        request: u64,
        step: usize,
        sent: Duration,
        intended: Duration,
        outcome: Result<Value, Error>,
    ) {
        match outcome {
            Ok(value) => self.settle(request, step, sent, intended, Ok(&value)),
            Err(Error::Server(error)) => self.settle(request, step, sent, intended, Err(&error)),
            Err(error) => self.fail(request, step, &error),
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
        self.run.replied(now);
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
        let detail = format!("{}: {error:#}", self.describe(request, step));
        lock(&self.share.tally).faults.add(Fault { kind, detail });
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
