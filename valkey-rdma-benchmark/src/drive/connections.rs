//! The connections of one thread: opened together, and driven by a task each or by tasks that share them.

use std::sync::Arc;

use tokio::task::JoinSet;
use valkey_rdma_transport::Stats;

use super::dial::{DialError, Target, dial};
use super::direct::{self, Link};
use super::job::Run;
use super::libraries::Choice;
use super::link_info::LinkInfo;
use super::open::{Opening, open_all};
use super::share::Share;
use super::shared::Group;
use crate::measure::{Counters, Fault, FaultKind};
use valkey_rdma_program::Interrupt;
use valkey_rdma_transport::sync::lock;

/// How a thread's connections are driven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Drive {
    /// Directly, by a task each.
    Direct,
    /// Through a client library, by this number of tasks on each.
    Shared(Choice, usize),
}

/// The connections of a thread.
pub(super) enum Connections {
    Direct(Vec<Option<Link>>),
    Shared(Box<dyn Group>),
}

impl Connections {
    pub(super) async fn open(
        target: &Arc<Target>,
        drive: &Drive,
        count: usize,
        opening: &Opening,
    ) -> Result<Option<Connections>, DialError> {
        Ok(match drive {
            Drive::Direct => open_all(count, opening, || {
                let target = Arc::clone(target);
                async move { dial(&target).await }
            })
            .await?
            .map(|wires| Connections::Direct(wires.into_iter().map(|wire| Some(Link::new(wire))).collect())),
            Drive::Shared(library, _) => library.open(target, count, opening).await?.map(Connections::Shared),
        })
    }

    /// What the first one runs on.
    pub(super) fn link_info(&self) -> LinkInfo {
        match self {
            Connections::Direct(links) => {
                let Some(first) = links.first().and_then(Option::as_ref) else { return LinkInfo::default() };
                let plain = LinkInfo { tls: first.stream().tls(), ..LinkInfo::default() };
                first.stream().monitor().map(|monitor| monitor.info()).map_or(plain.clone(), |info| {
                    LinkInfo {
                        device: Some(info.device.name),
                        mtu: info.device.mtu,
                        rx_window: Some(info.window),
                        tx_window: Some(info.peer_window),
                        ..plain
                    }
                })
            }
            Connections::Shared(group) => group.link_info(),
        }
    }

    /// What all of them have counted; `None` if they count nothing (TCP).
    pub(super) fn counters(&self) -> Option<Counters> {
        let stats: Vec<Stats> = match self {
            Connections::Direct(links) => {
                links.iter().flatten().filter_map(|link| link.stream().monitor()).map(|m| m.stats()).collect()
            }
            Connections::Shared(group) => group.stats(),
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
            Connections::Shared(group) => group.begin(run, share, tasks, &mut workers),
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
            let (count, wait) = (workers.len() as u64, run.last_wait().unwrap_or_default());
            let detail = format!("{count} tasks still waited for replies {wait:?} after the test");
            lock(&share.tally).faults.add_many(Fault { kind: FaultKind::NoReply, detail }, count);
            run.give_up();
        }
        if !workers.is_empty() {
            // Tasks that block cannot be aborted: they end themselves.
            run.stop();
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
