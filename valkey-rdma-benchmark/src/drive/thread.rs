//! One thread of a fleet: a runtime that opens connections and runs jobs on them.

use std::sync::Arc;

use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use super::background::Background;
use super::connections::{Connections, Drive};
use super::dial::{DialError, Target};
use super::job::Run;
use super::link_info::LinkInfo;
use super::open::{self, Opening};
use super::share::Share;
use super::usage::Usage;
use crate::measure::Counters;
use valkey_rdma_program::Interrupt;
use valkey_rdma_transport::sync::lock;

/// What a thread must do.
pub(super) struct Plan {
    pub(super) target: Arc<Target>,
    pub(super) drive: Drive,
    /// Threads of the runtime: with one, this thread.
    pub(super) runtime_threads: usize,
    pub(super) connections: usize,
    pub(super) opening: Arc<Opening>,
    pub(super) interrupt: Interrupt,
    /// For what the user should know while it waits.
    pub(super) notices: mpsc::UnboundedSender<String>,
}

/// What a thread reports when it has opened its connections; `None` if it was interrupted.
pub(super) type Ready = Result<Option<LinkInfo>, DialError>;

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

/// The thread: opens its connections, then runs jobs until the fleet is dropped.
pub(super) fn main(
    plan: Plan,
    ready: oneshot::Sender<std::io::Result<Ready>>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let mut runtime = match plan.runtime_threads {
        0 | 1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = match runtime.worker_threads(plan.runtime_threads.max(1)).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(ready.send(Err(error))),
    };
    runtime.block_on(async {
        let background = Background::from_now();
        let opened = Connections::open(&plan.target, &plan.drive, plan.connections, &plan.opening).await;
        let unopened = match opened {
            Ok(Some(mut connections)) => {
                if ready.send(Ok(Ok(Some(connections.link_info())))).is_err() {
                    return;
                }
                while let Some(order) = orders.recv().await {
                    let part = run_job(&plan, &mut connections, &order.run, &order.share).await;
                    let _ = order.done.send(part);
                }
                None
            }
            failed => Some((ready, failed.map(|_| None))),
        };
        if plan.target.is_device() {
            // A thread that was interrupted, or whose server stayed away, has given up connects.
            open::complete(background, &plan.interrupt, |text| {
                let _ = plan.notices.send(text.to_owned());
            })
            .await;
        }
        if let Some((ready, outcome)) = unopened {
            let _ = ready.send(Ok(outcome));
        }
    });
    // Connections that hang must not keep the thread.
    runtime.shutdown_background();
}

async fn run_job(plan: &Plan, connections: &mut Connections, run: &Arc<Run>, share: &Arc<Share>) -> Part {
    let tasks = match &plan.drive {
        Drive::Direct => 1,
        Drive::Shared(_, tasks) => *tasks,
    };
    // The only thread with a runtime of several, which are counted with the process.
    let used_so_far = if plan.runtime_threads > 1 { Usage::of_this_process } else { Usage::of_this_thread };
    let (before, used) = (connections.counters(), used_so_far());
    connections.run(run, share, tasks, &plan.interrupt).await;
    let mut usage = used_so_far().since(used);
    usage.add(*lock(&share.usage));
    let counters = before.map(|before| {
        // Connections that were opened meanwhile and live are counted with the others; those that are gone, apart.
        let mut after = connections.counters().unwrap_or_default();
        after.add(*lock(&share.retired));
        after.since(before)
    });
    Part { counters, usage }
}
