//! The connections of one thread: opened together, and driven by a task each or by tasks that share them.

use std::sync::Arc;

use tokio::task::JoinSet;
use valkey_rdma_transport::Stats;

use super::commands::Commands;
use super::dial::{DialError, Target, dial, dial_caller};
use super::direct::{self, Link};
use super::job::Run;
use super::open::{Opening, open_all};
use super::share::Share;
use super::shared::{self, Slot};
use crate::counters::Counters;
use crate::faults::{Fault, FaultKind};
use valkey_rdma_program::Interrupt;
use valkey_rdma_transport::sync::lock;

/// How a thread's connections are driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drive {
    /// Directly, by a task each.
    Direct,
    /// Through the client library, by this number of tasks on each.
    Shared(usize),
}

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

/// The connections of a thread.
pub(super) enum Connections {
    Direct(Vec<Option<Link>>),
    Shared(Vec<Arc<Slot>>),
}

impl Connections {
    pub(super) async fn open(
        target: &Arc<Target>,
        drive: Drive,
        count: usize,
        opening: &Opening,
    ) -> Result<Option<Connections>, DialError> {
        let opened = match drive {
            Drive::Direct => open_all(count, opening, || {
                let target = Arc::clone(target);
                async move { dial(&target).await }
            })
            .await?
            .map(|wires| Connections::Direct(wires.into_iter().map(|wire| Some(Link::new(wire))).collect())),
            Drive::Shared(_) => open_all(count, opening, || {
                let target = Arc::clone(target);
                async move { dial_caller(&target).await }
            })
            .await?
            .map(|clients| {
                Connections::Shared(clients.into_iter().map(|client| Arc::new(Slot::new(client))).collect())
            }),
        };
        Ok(opened)
    }

    /// What the first one runs on.
    pub(super) fn link_info(&self) -> LinkInfo {
        match self {
            Connections::Direct(links) => {
                let monitor = links.first().and_then(Option::as_ref).and_then(|link| link.stream().monitor());
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
                let info = slot.client().info();
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
    pub(super) fn counters(&self) -> Option<Counters> {
        let stats: Vec<Stats> = match self {
            Connections::Direct(links) => {
                links.iter().flatten().filter_map(|link| link.stream().monitor()).map(|m| m.stats()).collect()
            }
            Connections::Shared(slots) => {
                slots.iter().flat_map(|slot| shared::stats(&slot.client())).collect()
            }
        };
        let mut sum = Counters::default();
        stats.iter().for_each(|stats| sum.add(Counters::from(stats)));
        (!stats.is_empty()).then_some(sum)
    }

    pub(super) async fn run(
        &mut self,
        run: &Arc<Run>,
        share: &Arc<Share>,
        tasks: usize,
        interrupt: &Interrupt,
    ) {
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
            let detail = format!("{count} replies did not come within {:?} after the test", run.job.patience);
            lock(&share.tally).faults.add_many(Fault { kind: FaultKind::ConnectionLost, detail }, count);
            run.give_up();
        }
        workers.abort_all();
        // Some have ended meanwhile: their connections live.
        while let Some(ended) = workers.join_next().await {
            back.extend(ended.ok());
        }
        if let Connections::Direct(links) = self {
            back.resize_with(links.len(), || None);
            *links = back;
        }
    }
}
