//! Drives connections through a client library: many tasks share one connection.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::block_on::block_on;
use tokio::task::JoinSet;
use valkey_rdma_client::Value;
use valkey_rdma_transport::Stats;
use valkey_rdma_transport::sync::lock;

use super::direct::Link;
use super::job::Run;
use super::library::{Connection, Failure, Source};
use super::link_info::LinkInfo;
use super::reply_timer::{NoReply, ReplyTimer};
use super::retry::connect_again;
use super::share::Share;
use super::usage::Usage;
use crate::check::{Seen, Want, WantNothing};
use crate::measure::{Fault, FaultKind, Replies};
use crate::workload::{Expect, Step};

/// The shared connections of a thread, all of one library.
pub(super) trait Group: Send {
    /// What the first one runs on.
    fn link_info(&self) -> LinkInfo;

    /// The transport's counters of those that have them.
    fn stats(&self) -> Vec<Stats>;

    /// Begins `tasks` tasks on each connection.
    fn begin(&self, run: &Arc<Run>, share: &Arc<Share>, tasks: usize, workers: &mut JoinSet<Option<Link>>);
}

impl<S: Source> Group for Vec<Arc<Slot<S>>> {
    fn link_info(&self) -> LinkInfo {
        self.first().map_or_else(LinkInfo::default, |slot| slot.source.link_info(&slot.current().0))
    }

    fn stats(&self) -> Vec<Stats> {
        self.iter().flat_map(|slot| slot.source.stats(&slot.current().0)).collect()
    }

    fn begin(&self, run: &Arc<Run>, share: &Arc<Share>, tasks: usize, workers: &mut JoinSet<Option<Link>>) {
        self.iter().for_each(|slot| slot.begin());
        // Task by task over the connections, so that few requests spread over many connections too.
        for slot in (0..tasks).flat_map(|_| self) {
            let (run, share, slot) = (Arc::clone(run), Arc::clone(share), Arc::clone(slot));
            if S::Connection::BLOCKS {
                workers.spawn_blocking(move || {
                    let before = Usage::of_this_thread();
                    block_on(work(run, Arc::clone(&share), slot));
                    lock(&share.usage).add(Usage::of_this_thread().since(before));
                    None
                });
            } else {
                workers.spawn(async move {
                    work(run, share, slot).await;
                    None
                });
            }
        }
    }
}

/// A connection that tasks share, and the ones that took its place after losses.
pub(super) struct Slot<S: Source> {
    source: Arc<S>,
    client: Mutex<S::Connection>,
    /// Held while the connection is opened anew, so that one task does it.
    renewing: tokio::sync::Mutex<()>,
    /// Whether the current job has given up the server.
    given_up: AtomicBool,
    /// Counts the connections that were opened here.
    generation: AtomicU64,
    /// The generation that must not be used any more, because replies do not arrive on it.
    silent: AtomicU64,
    /// When the last reply arrived, for any task, in nanoseconds of the current job.
    progress: AtomicU64,
}

impl<S: Source> Slot<S> {
    pub(super) fn new(source: Arc<S>, client: S::Connection) -> Slot<S> {
        Slot {
            source,
            client: Mutex::new(client),
            renewing: tokio::sync::Mutex::new(()),
            progress: AtomicU64::new(0),
            given_up: AtomicBool::new(false),
            generation: AtomicU64::new(1),
            silent: AtomicU64::new(0),
        }
    }

    /// Makes it ready for another job, which may find the server back.
    fn begin(&self) {
        self.given_up.store(false, Ordering::Relaxed);
        self.progress.store(0, Ordering::Relaxed);
    }

    /// Whether connection `generation` may be used.
    fn is_usable(&self, client: &S::Connection, generation: u64) -> bool {
        !client.is_closed() && self.silent.load(Ordering::Relaxed) < generation
    }

    /// Lets no task use connection `generation` any more.
    fn give_up(&self, generation: u64) {
        self.silent.fetch_max(generation, Ordering::Relaxed);
    }

    fn current(&self) -> (S::Connection, u64) {
        let client = lock(&self.client);
        (client.clone(), self.generation.load(Ordering::Relaxed))
    }

    /// The connection and its generation, opened anew if it is lost. `None` if the job ends first.
    async fn living(&self, run: &Run, share: &Share) -> Option<(S::Connection, u64)> {
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
        let Some(renewed) = connect_again(run, || self.source.dial(&share.target)).await else {
            self.given_up.store(true, Ordering::Relaxed);
            return None;
        };
        run.outages.back();
        // Until now it was counted with those that live.
        share.retire_stats(self.source.stats(&client));
        let mut client = lock(&self.client);
        *client = renewed.clone();
        let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
        Some((renewed, generation))
    }
}

/// Sends requests over the connection in `slot` until none is left.
async fn work<S: Source>(run: Arc<Run>, share: Arc<Share>, slot: Arc<Slot<S>>) {
    let (mut client, mut generation) = slot.current();
    let turn = Turn { replies: Replies::new(run.job.script.parts()), seen: Seen::default() };
    let task = Task { run: &run, share: &share, slot: &slot, turn: Mutex::new(turn) };
    let mut timer = ReplyTimer::new(run.job.reply_timeout);
    loop {
        if !slot.is_usable(&client, generation) {
            let Some(living) = slot.living(&run, &share).await else { return };
            (client, generation) = living;
        }
        let Some((requests, intended)) = share.next(&run).await else { return };
        if let Err(NoReply(limit)) = task.exchange(&mut client, requests, intended, &mut timer).await {
            slot.give_up(generation);
            run.no_reply(limit);
        }
    }
}

/// When a request was sent and meant to be sent.
#[derive(Clone, Copy)]
struct Times {
    sent: Duration,
    intended: Duration,
}

/// What a task takes in one turn: the replies to a pipeline that are there.
struct Turn {
    replies: Replies,
    /// What was seen of the last one.
    seen: Seen,
}

struct Task<'a, S: Source> {
    run: &'a Run,
    share: &'a Share,
    slot: &'a Slot<S>,
    turn: Mutex<Turn>,
}

impl<S: Source> Task<'_, S> {
    /// Sends `requests` and waits for all their replies.
    ///
    /// Each reply is timed, checked and freed as it comes, so that the replies to a pipeline never are in memory together.
    /// Requests without a reply are counted as such.
    async fn exchange(
        &self,
        client: &mut S::Connection,
        requests: Range<u64>,
        intended: Option<Duration>,
        timer: &mut ReplyTimer,
    ) -> Result<(), NoReply> {
        let sent = self.run.now();
        let times = Times { sent, intended: intended.unwrap_or(sent) };
        // A task that sends again has its last reply.
        self.progress(sent);
        let script = &self.run.job.script;
        if requests.end - requests.start != 1 || script.commands_per_request() != 1 {
            return self.pipeline(client, requests, times, timer).await;
        }
        let (request, step) = (requests.start, script.request(requests.start).start);
        // Pinned here: to pass a call on would copy it, and those of clients are large.
        let mut call = pin!(client.call(self.command(request, step)));
        match timer.wait(|| self.last_progress(), call.as_mut()).await {
            Ok(outcome) => {
                self.take(request, step, outcome);
                self.turn_ends(times);
                Ok(())
            }
            Err(silent) => {
                self.silent(request, step, silent, 1);
                Err(silent)
            }
        }
    }

    /// Sends the commands of all requests together: no command of another task comes between them.
    async fn pipeline(
        &self,
        client: &mut S::Connection,
        requests: Range<u64>,
        times: Times,
        timer: &mut ReplyTimer,
    ) -> Result<(), NoReply> {
        let script = &self.run.job.script;
        let in_order =
            || requests.clone().flat_map(|request| script.request(request).map(move |step| (request, step)));
        let mut waiting = in_order();
        let commands = in_order().map(|(request, step)| self.command(request, step));
        let each = |outcome| {
            if let Some((request, step)) = waiting.next() {
                self.take(request, step, outcome);
            }
        };
        let sent_all = {
            let mut sending = pin!(client.call_all(commands, each));
            let in_turns = poll_fn(|cx| {
                let polled = sending.as_mut().poll(cx);
                self.turn_ends(times);
                polled
            });
            timer.wait(|| self.last_progress(), in_turns).await
        };
        match sent_all {
            Ok(Ok(())) => Ok(()),
            Ok(Err(failure)) => {
                waiting.for_each(|(request, step)| self.fail(request, step, failure.clone()));
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

    fn command(&self, request: u64, step: usize) -> <S::Connection as Connection>::Command {
        let job = &self.run.job;
        self.step(step).template.command::<S::Connection>(&job.keys, &job.values, request)
    }

    /// A reply has arrived on the connection at this time of the run.
    fn progress(&self, at: Duration) {
        self.slot.progress.fetch_max(at.as_nanos() as u64, Ordering::Relaxed);
    }

    /// When the connection's last reply arrived, for any task: large replies for other tasks delay a reply although the
    /// server is alive.
    fn last_progress(&self) -> Instant {
        self.run.started + Duration::from_nanos(self.slot.progress.load(Ordering::Relaxed))
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

    /// Counts the replies of a turn.
    fn turn_ends(&self, times: Times) {
        let replies = &mut lock(&self.turn).replies;
        let counted = lock(&self.share.tally).count(replies, times.sent, times.intended);
        if let Some((now, count)) = counted {
            self.share.done.fetch_add(count, Ordering::Relaxed);
            self.run.replied(now);
            self.progress(now);
        }
    }

    /// Takes the outcome of a command. A reply is checked, and counts when the turn ends.
    fn take(&self, request: u64, number: usize, outcome: Result<Value, Failure>) {
        let reply = match outcome {
            Ok(reply) => reply,
            Err(failure) => return self.fail(request, number, failure),
        };
        let (job, step) = (&self.run.job, self.step(number));
        let Turn { replies, seen } = &mut *lock(&self.turn);
        replies.came(|| self.run.now());
        let want = self.run.want(&step.template, request);
        // The usual reply is right, and nothing else needs to be known of it.
        let received = match (&reply, step.expect) {
            (Value::Bulk(got), Expect::Value) if want.string(0).is_some_and(|wanted| wanted.is(got)) => {
                got.len() as u64
            }
            (Value::Simple(got), Expect::Status(wanted)) if got == wanted => 0,
            _ => {
                if step.expect.is_of_values() {
                    seen.see(&reply, &want);
                } else {
                    seen.see(&reply, &WantNothing);
                }
                if !step.expect.is_met(seen) {
                    let fault = step.expect.fault(&self.describe(request, number), seen);
                    lock(&self.share.tally).faults.add(fault);
                    self.wrong();
                }
                seen.payload
            }
        };
        replies.add(number, received + step.template.payload(&job.keys, &job.values, request));
    }

    /// Counts a request that gets no reply.
    #[cold]
    fn fail(&self, request: u64, step: usize, failure: Failure) {
        let (kind, why) = match failure {
            Failure::Refused(why) => (FaultKind::Refused, why),
            Failure::Lost(why) => (FaultKind::ConnectionLost, why),
        };
        let detail = format!("{}: {why}", self.describe(request, step));
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
