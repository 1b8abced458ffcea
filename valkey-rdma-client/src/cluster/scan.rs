//! [`ClusterScan`]: a [`Scan`](crate::Scan) of the whole cluster, whatever moves meanwhile.

use crate::endpoint::NodeAddress;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use valkey_rdma_resp::Value;

use super::call::{ClusterCall, Target};
use super::client::Cluster;
use super::discovery::own_slots;
use super::node::Node;
use super::route::slot_of;
use super::slots_reply::SLOTS;
use crate::command::Command;
use crate::command::table::Access;
use crate::error::{ClusterError, Error, Fate, TimedOut};
use crate::link::Deadline;
use crate::scan::cursor::Cursor;
use crate::scan::options::{ScanOptions, batch};
use crate::spans::Call;

/// How far the scan of a cluster has come.
#[derive(Clone, Debug)]
pub(crate) struct ClusterScan {
    cluster: Cluster,
    /// The slots that were scanned.
    done: Box<[bool; SLOTS]>,
    part: Option<Part>,
    /// The slots of each node that was scanned, until a map confirms them.
    unconfirmed: Vec<(NodeAddress, Vec<u16>)>,
    /// How often the map was read to confirm them.
    readings: u32,
    /// Failures since the last node that was scanned to its end.
    failures: u32,
}

/// The scan of one node.
#[derive(Clone, Debug)]
struct Part {
    address: NodeAddress,
    cursor: Cursor,
    /// True once the last batch was received.
    ended: bool,
    /// The slots that it has had since the beginning.
    slots: Vec<u16>,
}

impl Cluster {
    /// The next batch of a scan within one key. Always from the primary: replicas have cursors of their own.
    pub(crate) async fn scan_key(
        &self,
        key: &[u8],
        cursor: &mut Cursor,
        command_at: impl Fn(&[u8]) -> Command,
    ) -> Result<Value, Error> {
        let target = Target::Slot(slot_of(key), Access::Write);
        let deadline = self.core.config.command_timeout.and_then(Deadline::after);
        self.scan_step(target, deadline, cursor, command_at).await
    }

    /// Asks for the batch at a cursor, or for the first one if another server must be asked than the last time. The caller takes the
    /// cursor of the reply.
    pub(super) async fn scan_step(
        &self,
        target: Target,
        deadline: Option<Deadline>,
        cursor: &mut Cursor,
        command_at: impl Fn(&[u8]) -> Command,
    ) -> Result<Value, Error> {
        let command = command_at(cursor.get());
        let mut tries = ClusterCall::of(&self.core, &command, target, deadline).repeatable(true);
        let answer = async {
            loop {
                let place = tries.next().await?;
                let server = place.client.id();
                if let Some(count) = cursor.restarted_too_often(&server) {
                    let (command, address) = (command.name(), place.node.address().to_string());
                    return Err(ClusterError::ScanRestarted { command, address, count }.into());
                }
                match place.send(command_at(cursor.on(&server)), deadline).await {
                    Ok(reply) => {
                        cursor.answered_by(server);
                        return Ok(reply);
                    }
                    Err(failed) => tries.failed(&place, failed.error).await?,
                }
            }
        };
        Call::command(self.endpoint(), &command).run(answer).await
    }
}

impl ClusterScan {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self {
            cluster: cluster.clone(),
            done: Box::new([false; SLOTS]),
            part: None,
            unconfirmed: Vec::new(),
            readings: 0,
            failures: 0,
        }
    }

    /// The next batch, which may be empty; `None` at the end.
    pub(crate) async fn next_batch(&mut self, options: &ScanOptions) -> Result<Option<Vec<Bytes>>, Error> {
        let mut patience = Patience::new(&self.cluster);
        loop {
            let Some(part) = &self.part else {
                if !self.begin_part()? && self.confirm().await? {
                    return Ok(None);
                }
                continue;
            };
            let Some(node) = self.cluster.core.topology.find(&part.address) else {
                self.part = None;
                continue;
            };
            let began = Instant::now();
            let core = self.cluster.core.clone();
            let outcome = tokio::select! {
                biased;
                // It may be frozen. Its successor has its keys.
                () = core.topology.replaced(&node) => {
                    self.part = None;
                    continue;
                }
                outcome = self.step(&node, &patience, options) => outcome,
            };
            match outcome {
                Ok(None) => {
                    self.failures = 0;
                    patience = Patience::new(&self.cluster);
                }
                Ok(batch) => return Ok(batch),
                Err(error) => {
                    // The node may have been replaced, so its part begins again, unless all of it is there.
                    self.part.take_if(|part| !part.ended);
                    self.failures += 1;
                    let gone = error.fate() != Fate::Answered || matches!(error, Error::Unexpected(_));
                    let restarted = matches!(error, Error::Cluster(ClusterError::ScanRestarted { .. }));
                    let is_over = patience.is_over(began, error.fate());
                    if !gone || restarted || is_over || self.failures > MOST_FAILURES {
                        self.failures = 0;
                        return Err(error);
                    }
                    let refreshed = async {
                        self.cluster.core.refreshed().await;
                        Ok(())
                    };
                    patience.limit(&node, refreshed).await?;
                }
            }
        }
    }

    /// The next batch of the node, or `None` once its part has ended.
    async fn step(
        &mut self,
        node: &Arc<Node>,
        patience: &Patience,
        options: &ScanOptions,
    ) -> Result<Option<Vec<Bytes>>, Error> {
        match &mut self.part {
            Some(part) if !part.ended => {
                let batch = part.next_batch(&self.cluster, node.clone(), patience.deadline, options);
                batch.await.map(Some)
            }
            _ => patience.limit(node, self.end_part(node)).await.map(|()| None),
        }
    }

    /// Begins with the node of the first slot left. Returns `false` if none is left.
    fn begin_part(&mut self) -> Result<bool, Error> {
        let Some(slot) = self.done.iter().position(|done| !done) else { return Ok(false) };
        let slot = slot as u16;
        let map = self.cluster.core.topology.map();
        let shard = map.shard(slot).ok_or(ClusterError::Uncovered { slot: Some(slot) })?;
        let address = shard.primary.address().clone();
        let slots = map.slots_of(&address).collect();
        self.part = Some(Part { address, cursor: Cursor::default(), ended: false, slots });
        Ok(true)
    }

    /// Counts the slots that the node had all the time as scanned. After an error it is asked again.
    async fn end_part(&mut self, node: &Arc<Node>) -> Result<(), Error> {
        // A scan is never redirected. The other nodes may not have heard of the last moves, but this one has.
        let own = own_slots(node).await?;
        let Some(part) = &mut self.part else { return Ok(()) };
        let is_own = |slot: &u16| own.iter().any(|range| range.contains(slot));
        let (kept, left): (Vec<u16>, Vec<u16>) = part.slots.iter().partition(|slot| is_own(slot));
        if !left.is_empty() {
            let core = &self.cluster.core;
            core.refreshed_now().await?;
            let map = core.topology.map();
            if let Some(slot) = left.into_iter().find(|slot| map.is_primary_of(*slot, node)) {
                // No node says that it has it.
                self.part = None;
                return Err(ClusterError::Uncovered { slot: Some(slot) }.into());
            }
        }
        kept.iter().for_each(|slot| self.done[usize::from(*slot)] = true);
        self.unconfirmed.extend(self.part.take().map(|part| (part.address, kept)));
        Ok(())
    }

    /// Reads the map once all is scanned: a node that was cut off from the others does not know what it has lost. True if nothing is
    /// left to scan.
    async fn confirm(&mut self) -> Result<bool, Error> {
        if self.unconfirmed.is_empty() || self.readings >= MOST_READINGS {
            return Ok(true);
        }
        let core = &self.cluster.core;
        core.refreshed_now().await?;
        self.readings += 1;
        let map = core.topology.map();
        for (address, slots) in self.unconfirmed.drain(..) {
            let node = core.topology.find(&address);
            let is_its = |slot: u16| node.as_ref().is_some_and(|node| map.is_primary_of(slot, node));
            slots
                .into_iter()
                .filter(|slot| !is_its(*slot))
                .for_each(|slot| self.done[usize::from(slot)] = false);
        }
        Ok(self.done.iter().all(|done| *done))
    }
}

impl Part {
    /// The next batch of the node.
    async fn next_batch(
        &mut self,
        cluster: &Cluster,
        node: Arc<Node>,
        deadline: Option<Deadline>,
        options: &ScanOptions,
    ) -> Result<Vec<Bytes>, Error> {
        let command_at = |at: &[u8]| options.add_to(Command::new("SCAN").arg(at));
        let reply = cluster.scan_step(Target::Node(node), deadline, &mut self.cursor, command_at).await?;
        let (cursor, keys) = batch(reply)?;
        self.ended = !self.cursor.advance(cursor);
        Ok(keys)
    }
}

/// How long a scan tries to get further: as long as one command does.
struct Patience {
    deadline: Option<Deadline>,
    offline_timeout: Option<Duration>,
    /// When it began to ask a server that it did not reach.
    offline_since: Option<Instant>,
}

impl Patience {
    fn new(cluster: &Cluster) -> Self {
        let config = &cluster.core.config;
        Self {
            deadline: config.command_timeout.and_then(Deadline::after),
            offline_timeout: config.offline_timeout,
            offline_since: None,
        }
    }

    /// Waits until the deadline at most.
    async fn limit(&self, node: &Node, future: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
        let Some(Deadline { at, limit }) = self.deadline else { return future.await };
        let late = || Err(TimedOut { peer: node.name().clone(), limit, may_have_run: false }.into());
        timeout_at(at, future).await.unwrap_or_else(|_| late())
    }

    /// True if a failure is not to be followed by another attempt. The attempt began at this moment, and ended just now.
    fn is_over(&mut self, began: Instant, fate: Fate) -> bool {
        let since = if fate == Fate::NotSent { began } else { Instant::now() };
        let since = *self.offline_since.get_or_insert(since);
        self.deadline.is_some_and(Deadline::has_passed)
            || self.offline_timeout.is_some_and(|limit| since.elapsed() >= limit)
    }
}

/// Slots that move on and on do not keep a scan from its end.
const MOST_READINGS: u32 = 8;

/// After this many failures during the scan of one node, the last one is reported.
const MOST_FAILURES: u32 = 8;
