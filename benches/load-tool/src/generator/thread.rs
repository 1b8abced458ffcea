//! One thread of a fleet: a runtime, a share of the connections, and what they measure.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use valkey_rdma_transport::Stats;

use super::background::Background;
use super::commands::Commands;
use super::dial::{DialError, Target, dial, dial_client};
use super::direct::{self, Link};
use super::job::{Limit, Run};
use super::lock;
use super::open::{self, Opening, open_all};
use super::pace::{Pace, Schedule};
use super::shared::{self, Slot};
use super::wire::Wire;
use crate::counters::Counters;
use crate::faults::{Fault, FaultKind};
use crate::interrupt::Interrupt;
use crate::measure::{Latencies, Tally};

/// How a thread's connections are driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drive {
    /// Directly, by a task each.
    Direct,
    /// Through the client library, by so many tasks on each.
    Shared(usize),
}

/// What a thread is to do.
pub(super) struct Plan {
    pub(super) target: Arc<Target>,
    pub(super) drive: Drive,
    pub(super) connections: usize,
    pub(super) opening: Arc<Opening>,
    pub(super) interrupt: Interrupt,
    /// For what the user should know while it waits.
    pub(super) notices: mpsc::UnboundedSender<String>,
}

/// What a thread tells when its connections are open; `None` if they are not and nobody is to blame.
pub(super) type Ready = Result<Option<LinkInfo>, DialError>;

/// What a connection runs on, as far as its transport has such things.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LinkInfo {
    /// The RDMA device.
    pub(crate) device: Option<String>,
    /// Its active path MTU in bytes.
    pub(crate) mtu: Option<u32>,
    /// Length of our receive window in bytes.
    pub(crate) rx_window: Option<u32>,
    /// Length of the server's.
    pub(crate) tx_window: Option<u32>,
}

/// A job for a thread.
pub(super) struct Order {
    pub(super) run: Arc<Run>,
    pub(super) share: Arc<Share>,
    pub(super) done: oneshot::Sender<Part>,
}

/// What a thread found.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) counters: Option<Counters>,
    pub(super) usage: Usage,
}

/// What a thread has used of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Time in the program itself.
    pub(crate) user: Duration,
    /// Time in the kernel on its behalf.
    pub(crate) system: Duration,
    /// How often it slept.
    pub(crate) sleeps: u64,
}

impl Usage {
    /// That of this thread so far.
    pub(super) fn of_this_thread() -> Usage {
        let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return Usage::default() };
        let time = |time: nix::sys::time::TimeVal| {
            Duration::new(time.tv_sec().unsigned_abs(), time.tv_usec().unsigned_abs() as u32 * 1000)
        };
        Usage {
            user: time(usage.user_time()),
            system: time(usage.system_time()),
            sleeps: usage.voluntary_context_switches().unsigned_abs(),
        }
    }

    /// What was used since `earlier`.
    pub(crate) fn since(self, earlier: Usage) -> Usage {
        Usage {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            sleeps: self.sleeps.saturating_sub(earlier.sleeps),
        }
    }

    /// Adds what another thread has used.
    pub(crate) fn add(&mut self, other: Usage) {
        self.user += other.user;
        self.system += other.system;
        self.sleeps += other.sleeps;
    }

    /// Time in program and kernel together.
    pub(crate) fn cpu(&self) -> Duration {
        self.user + self.system
    }
}

/// What the tasks of one thread share during a job; the coordinator looks in.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) target: Arc<Target>,
    pub(super) tally: Mutex<Tally>,
    /// Replies so far.
    pub(super) done: AtomicU64,
    /// How long connecting anew took (`-k 0`).
    pub(super) connects: Mutex<Latencies>,
    /// The schedule, held by the connection that waits for the next arrival.
    schedule: Option<tokio::sync::Mutex<Schedule>>,
    /// Counters of connections that are gone.
    retired: Mutex<Counters>,
}

impl Share {
    pub(super) fn new(target: Arc<Target>, run: &Run, number: usize, threads: usize) -> Share {
        let job = &run.job;
        let script = &job.script;
        let commands = job.pipeline * script.commands_per_request() as u64;
        let schedule = match job.pace {
            Pace::Closed => None,
            Pace::Open { rate, arrivals } => {
                Some(tokio::sync::Mutex::new(Schedule::new(rate, arrivals, commands, number, threads)))
            }
        };
        let parts = if script.is_mixed() { script.steps().len() } else { 0 };
        Share {
            target,
            tally: Mutex::new(Tally::new(schedule.is_some(), parts, job.intervals)),
            done: AtomicU64::new(0),
            connects: Mutex::default(),
            schedule,
            retired: Mutex::default(),
        }
    }

    /// Draws the next requests and, with a schedule, waits until they are due: their numbers, and when they were
    /// meant to begin. `None` when there are no more.
    pub(super) async fn next(&self, run: &Run) -> Option<(Range<u64>, Option<Duration>)> {
        let Some(schedule) = &self.schedule else { return Some((run.draw()?, None)) };
        let mut schedule = schedule.lock().await;
        let intended = schedule.next();
        if run.is_over(intended) || run.is_too_late() {
            return None;
        }
        schedule.arrival();
        let requests = run.draw()?;
        schedule.until(run.started + intended).await;
        if run.is_stopped() {
            return None; // A wrong reply came meanwhile.
        }
        Some((requests, Some(intended)))
    }

    /// Whether requests have their times, rather than following replies.
    pub(super) fn has_schedule(&self) -> bool {
        self.schedule.is_some()
    }

    /// Requests of the schedule that were due and not sent, when no connection is at work any more.
    pub(super) fn overdue(&self, run: &Run) -> u64 {
        let (Some(schedule), Limit::Time(end)) = (&self.schedule, run.job.limit) else { return 0 };
        schedule.try_lock().map_or(0, |schedule| schedule.left(end).saturating_mul(run.job.pipeline))
    }

    /// Counts what a connection has done that will be gone.
    pub(super) fn retire(&self, wire: Option<&Wire>) {
        self.retire_stats(wire.and_then(Wire::monitor).map(|monitor| monitor.stats()));
    }

    pub(super) fn retire_stats(&self, stats: Option<Stats>) {
        if let Some(stats) = stats {
            lock(&self.retired).add(Counters::from(&stats));
        }
    }
}

/// The connections of a thread.
enum Connections {
    Direct(Vec<Option<Link>>),
    Shared(Vec<Arc<Slot>>),
}

impl Connections {
    async fn open(plan: &Plan) -> Result<Option<Connections>, DialError> {
        let (count, opening, target) = (plan.connections, &*plan.opening, &plan.target);
        let opened = match plan.drive {
            Drive::Direct => open_all(count, opening, || {
                let target = Arc::clone(target);
                async move { dial(&target).await }
            })
            .await?
            .map(|wires| Connections::Direct(wires.into_iter().map(|wire| Some(Link::new(wire))).collect())),
            Drive::Shared(_) => open_all(count, opening, || {
                let target = Arc::clone(target);
                async move { dial_client(&target).await }
            })
            .await?
            .map(|clients| {
                Connections::Shared(clients.into_iter().map(|client| Arc::new(Slot::new(client))).collect())
            }),
        };
        Ok(opened)
    }

    /// What the first one runs on.
    fn link_info(&self) -> LinkInfo {
        match self {
            Connections::Direct(links) => {
                let monitor = links.first().and_then(Option::as_ref).and_then(|link| link.wire().monitor());
                monitor.map_or_else(LinkInfo::default, |monitor| {
                    let info = monitor.info();
                    LinkInfo {
                        device: Some(info.device.name),
                        mtu: info.device.mtu,
                        rx_window: Some(info.window),
                        tx_window: Some(info.peer_window),
                    }
                })
            }
            Connections::Shared(slots) => slots.first().map_or_else(LinkInfo::default, |slot| {
                let client = slot.client();
                let info = client.info();
                LinkInfo {
                    device: info.device.clone(),
                    mtu: info.mtu,
                    rx_window: info.rx_window,
                    tx_window: info.tx_window,
                }
            }),
        }
    }

    /// What all of them have counted; `None` if they count nothing (TCP).
    fn counters(&self) -> Option<Counters> {
        let stats: Vec<Stats> = match self {
            Connections::Direct(links) => {
                links.iter().flatten().filter_map(|link| link.wire().monitor()).map(|m| m.stats()).collect()
            }
            Connections::Shared(slots) => slots.iter().filter_map(|slot| slot.client().stats()).collect(),
        };
        let mut sum = Counters::default();
        stats.iter().for_each(|stats| sum.add(Counters::from(stats)));
        (!stats.is_empty()).then_some(sum)
    }

    async fn run(&mut self, run: &Arc<Run>, share: &Arc<Share>, tasks: usize, interrupt: &Interrupt) {
        let mut workers = JoinSet::new();
        match self {
            Connections::Direct(links) => {
                for link in links.iter_mut() {
                    let link = link.take();
                    if link.is_none() {
                        run.outages.lost();
                    }
                    workers.spawn(direct::work(Arc::clone(run), Arc::clone(share), link));
                }
            }
            Connections::Shared(slots) => {
                // Task by task over the connections, so that few requests spread over many connections too.
                slots.iter().for_each(|slot| slot.begin());
                let commands = Arc::new(Commands::new(&run.job));
                for slot in (0..tasks).flat_map(|_| slots.iter()) {
                    let (run, share, slot) = (Arc::clone(run), Arc::clone(share), Arc::clone(slot));
                    let commands = Arc::clone(&commands);
                    workers.spawn(async move {
                        shared::work(run, share, slot, commands).await;
                        None
                    });
                }
            }
        }
        let mut back = Vec::new();
        let all = async {
            while let Some(ended) = workers.join_next().await {
                match ended {
                    Ok(link) => back.push(link),
                    // A bug in a task is a bug in the tool.
                    Err(error) => {
                        if let Ok(panic) = error.try_into_panic() {
                            std::panic::resume_unwind(panic);
                        }
                    }
                }
            }
        };
        let hung = tokio::select! {
            () = all => false,
            () = interrupt.asked() => false,
            () = run.no_more_replies() => true,
        };
        if hung && !workers.is_empty() {
            let count = workers.len() as u64;
            let story = format!("{count} replies did not come within {:?} after the test", run.job.patience);
            lock(&share.tally).faults.add_many(Fault { kind: FaultKind::ConnectionLost, story }, count);
            run.give_up();
        }
        workers.shutdown().await;
        if let Connections::Direct(links) = self {
            back.resize_with(links.len(), || None);
            *links = back;
        }
    }
}

/// The thread: opens its connections, then does what it is told until nobody is left to tell it.
pub(super) fn main(
    plan: Plan,
    ready: oneshot::Sender<std::io::Result<Ready>>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(ready.send(Err(error))),
    };
    runtime.block_on(async {
        let background = Background::from_now();
        let opened = Connections::open(&plan).await;
        let mut connections = match opened {
            Ok(Some(connections)) => connections,
            failed => {
                if plan.target.is_device() {
                    open::complete(background, &plan.interrupt, |text| {
                        let _ = plan.notices.send(text.to_owned());
                    })
                    .await;
                }
                return drop(ready.send(Ok(failed.map(|_| None))));
            }
        };
        if ready.send(Ok(Ok(Some(connections.link_info())))).is_err() {
            return;
        }
        while let Some(order) = orders.recv().await {
            let part = obey(&plan, &mut connections, &order.run, &order.share).await;
            let _ = order.done.send(part);
        }
        drop(connections);
        if plan.target.is_device() {
            // A test that was interrupted, or whose server stayed away, has given up connects.
            open::complete(background, &plan.interrupt, |text| {
                let _ = plan.notices.send(text.to_owned());
            })
            .await;
        }
    });
    // Connections that hang must not keep the thread.
    runtime.shutdown_background();
}

async fn obey(plan: &Plan, connections: &mut Connections, run: &Arc<Run>, share: &Arc<Share>) -> Part {
    let tasks = match plan.drive {
        Drive::Direct => 1,
        Drive::Shared(tasks) => tasks,
    };
    let (before, used) = (connections.counters(), Usage::of_this_thread());
    connections.run(run, share, tasks, &plan.interrupt).await;
    let usage = Usage::of_this_thread().since(used);
    let counters = before.map(|before| {
        // Connections that were opened meanwhile and live are counted with the others; those that are gone, apart.
        let mut after = connections.counters().unwrap_or_default();
        after.add(*lock(&share.retired));
        after.since(before)
    });
    Part { counters, usage }
}
