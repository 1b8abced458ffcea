//! [`ClusterScan`]: the keys of the whole cluster, whatever moves meanwhile.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream;
use tokio::time::{Instant, timeout_at};
use valkey_rdma_resp::Value;

use super::address::NodeAddress;
use super::call::{ClusterCall, Target};
use super::client::Cluster;
use super::discovery::own_slots;
use super::node::Node;
use super::slots_reply::SLOTS;
use crate::command::{Command, ToArg};
use crate::error::{ClusterError, Error, Fate, TimedOut};
use crate::link::Deadline;
use crate::scan::cursor::Cursor;
use crate::scan::options::{ScanOptions, batch, one_by_one};

/// The keys of a cluster, batch by batch: [`ClusterClient::scan`].
///
/// ```no_run
/// # async fn example(cluster: valkey_rdma_client::ClusterClient) -> Result<(), valkey_rdma_client::Error> {
/// let mut scan = cluster.scan().matching("user:*").count(1000);
/// while let Some(keys) = scan.next_batch().await? {
///     println!("{} keys", keys.len());
/// }
/// # Ok(())
/// # }
/// ```
///
/// # What is promised
/// As for SCAN on one server: a key that exists from beginning to end is returned at least once, perhaps several times.
/// That holds while slots move and nodes fail over. A node's slots count as scanned only if the node says at the end of its
/// part that it still has them, and the map of the end of the scan agrees; others are scanned on the node that has them
/// then. A node that fails in the middle is scanned again, or its successor, and so is a node whose connection was
/// replaced.
///
/// The exception is a slot whose keys move one by one (CLUSTER SETSLOT and MIGRATE), to a node that was scanned before: keys
/// that moved before they were scanned are missed if the slot itself has not moved by the end of the scan. Atomic slot
/// migration (CLUSTER MIGRATESLOTS, since Valkey 9.0) moves a slot and its keys at once.
#[derive(Debug)]
pub struct ClusterScan {
    cluster: Cluster,
    options: ScanOptions,
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
#[derive(Debug)]
struct Part {
    address: NodeAddress,
    cursor: Cursor,
    /// True once the last batch was received.
    ended: bool,
    /// The slots that it has had since the beginning.
    slots: Vec<u16>,
}

impl Cluster {
    /// Begins a scan of all keys.
    pub fn scan(&self) -> ClusterScan {
        ClusterScan {
            cluster: self.clone(),
            options: ScanOptions::default(),
            done: Box::new([false; SLOTS]),
            part: None,
            unconfirmed: Vec::new(),
            readings: 0,
            failures: 0,
        }
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
        let mut call = ClusterCall::of(&self.core, &command, target, deadline).repeatable(true);
        loop {
            let place = call.next().await?;
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
                Err(failed) => call.failed(&place, failed.error).await?,
            }
        }
    }
}

impl ClusterScan {
    /// Returns only keys that match a pattern: MATCH.
    #[must_use]
    pub fn matching(mut self, pattern: impl ToArg) -> Self {
        self.options.add("MATCH", pattern);
        self
    }

    /// How many keys a batch looks at, roughly: COUNT. The servers' default is 10.
    #[must_use]
    pub fn count(mut self, keys: usize) -> Self {
        self.options.add("COUNT", keys);
        self
    }

    /// Returns only keys of a type, such as `string` or `hash`: TYPE.
    #[must_use]
    pub fn of_type(mut self, name: impl ToArg) -> Self {
        self.options.add("TYPE", name);
        self
    }

    /// The keys, one by one, as [`Scan::keys`](crate::Scan::keys) returns them.
    pub fn keys(self) -> impl Stream<Item = Result<Bytes, Error>> + Send + Unpin + use<> {
        one_by_one(stream::try_unfold(self, |mut scan| async move {
            Ok(scan.next_batch().await?.map(|batch| (batch, scan)))
        }))
    }

    /// The next batch, which may be empty; `None` at the end.
    ///
    /// # Errors
    /// [`ClusterError::Uncovered`] if a slot has no node, [`ClusterError::ScanRestarted`] if connections to a node live too short for
    /// its part, and as for any command: the time limits are those of one command, from the call or from the last node that was scanned to
    /// its end. The scan can go on after an error.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the batch is asked for again.
    pub async fn next_batch(&mut self) -> Result<Option<Vec<Bytes>>, Error> {
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
                outcome = self.step(&node, &patience) => outcome,
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
    async fn step(&mut self, node: &Arc<Node>, patience: &Patience) -> Result<Option<Vec<Bytes>>, Error> {
        match &mut self.part {
            Some(part) if !part.ended => {
                let batch = part.next_batch(&self.cluster, node.clone(), patience.deadline, &self.options);
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
        let shard = map.shard(slot).ok_or(ClusterError::Uncovered { slot })?;
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
                return Err(ClusterError::Uncovered { slot }.into());
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
        let config = &cluster.core.config.node;
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
