//! [`ClusterScan`]: the keys of the whole cluster, whatever moves meanwhile.

use std::sync::Arc;

use bytes::Bytes;
use valkey_rdma_resp::{UnexpectedReply, Value};

use super::address::NodeAddress;
use super::client::ClusterClient;
use super::node::Node;
use super::slots_reply::SLOTS;
use super::tries::Target;
use crate::error::{ClusterError, Error, Fate};
use crate::multiplexer::Deadline;
use crate::resp::Command;

/// The keys of a cluster, batch by batch: [`ClusterClient::scan`].
///
/// ```no_run
/// # async fn example(cluster: valkey_rdma_client::ClusterClient) -> Result<(), valkey_rdma_client::Error> {
/// let mut scan = cluster.scan().matching("user:*").count(1000);
/// while let Some(keys) = scan.next().await? {
///     println!("{} keys", keys.len());
/// }
/// # Ok(())
/// # }
/// ```
///
/// # What is promised
/// As for SCAN on one server: a key that exists from beginning to end is returned at least once, perhaps several times.
/// That holds while slots move and nodes fail over. A node's slots count as scanned only if the node still has them at the
/// end of its part; others are scanned on the node that has them then. A node that fails in the middle is scanned again,
/// or its successor.
#[derive(Debug)]
pub struct ClusterScan {
    cluster: ClusterClient,
    options: Vec<Bytes>,
    /// The slots that were scanned.
    done: Box<[bool; SLOTS]>,
    part: Option<Part>,
    /// Failures in a row without a batch between them.
    failures: u32,
}

/// The scan of one node.
#[derive(Debug)]
struct Part {
    address: NodeAddress,
    cursor: Bytes,
    /// The slots that it has had since the beginning.
    slots: Vec<u16>,
}

impl ClusterClient {
    /// Begins a scan of all keys.
    pub fn scan(&self) -> ClusterScan {
        ClusterScan {
            cluster: self.clone(),
            options: Vec::new(),
            done: Box::new([false; SLOTS]),
            part: None,
            failures: 0,
        }
    }
}

impl ClusterScan {
    /// Returns only keys that match a pattern: MATCH.
    #[must_use]
    pub fn matching(self, pattern: impl AsRef<[u8]>) -> Self {
        self.option("MATCH", pattern.as_ref())
    }

    /// How many keys a batch looks at, roughly: COUNT. The servers' default is 10.
    #[must_use]
    pub fn count(self, keys: usize) -> Self {
        self.option("COUNT", keys.to_string().as_bytes())
    }

    /// Returns only keys of a type, such as `string` or `hash`: TYPE.
    #[must_use]
    pub fn of_type(self, name: impl AsRef<[u8]>) -> Self {
        self.option("TYPE", name.as_ref())
    }

    /// The next batch, which may be empty; `None` at the end.
    ///
    /// # Errors
    /// [`ClusterError::Uncovered`] if a slot has no node, and as for any command. The scan can go on after an error.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the batch is asked for again.
    pub async fn next(&mut self) -> Result<Option<Vec<Bytes>>, Error> {
        loop {
            let Some(part) = &self.part else {
                if !self.begin_part()? {
                    return Ok(None);
                }
                continue;
            };
            let Some(node) = self.cluster.core.topology.find(&part.address) else {
                self.part = None;
                continue;
            };
            let mut command = Command::new("SCAN").arg(&part.cursor);
            for option in &self.options {
                command = command.arg(option);
            }
            match self.batch(node, command.idempotent()).await {
                Ok((cursor, keys)) => {
                    self.failures = 0;
                    let ended = &cursor[..] == b"0";
                    if let Some(part) = &mut self.part {
                        part.cursor = cursor;
                    }
                    if ended {
                        self.end_part().await;
                    }
                    return Ok(Some(keys));
                }
                Err(error) => {
                    // The cursor holds on this node only, so its part begins again.
                    self.part = None;
                    self.failures += 1;
                    let gone = error.fate() != Fate::Answered || matches!(error, Error::Unexpected(_));
                    if !gone || self.failures > MOST_FAILURES {
                        self.failures = 0;
                        return Err(error);
                    }
                    self.cluster.core.refreshed().await;
                }
            }
        }
    }

    fn option(mut self, name: &'static str, value: &[u8]) -> Self {
        self.options.push(Bytes::from_static(name.as_bytes()));
        self.options.push(Bytes::copy_from_slice(value));
        self
    }

    /// Begins with the node of the first slot left. Returns `false` if none is left.
    fn begin_part(&mut self) -> Result<bool, Error> {
        let Some(slot) = self.done.iter().position(|done| !done) else { return Ok(false) };
        let slot = slot as u16;
        let map = self.cluster.core.topology.map();
        let shard = map.shard(slot).ok_or(ClusterError::Uncovered { slot })?;
        let address = shard.primary.address().clone();
        let slots = map.slots_of(&address).collect();
        self.part = Some(Part { address, cursor: Bytes::from_static(b"0"), slots });
        Ok(true)
    }

    /// Counts the slots that the node had all the time as scanned.
    async fn end_part(&mut self) {
        // A scan is never redirected: only a new map shows what has left the node.
        self.cluster.core.refreshed().await;
        let Some(part) = self.part.take() else { return };
        let map = self.cluster.core.topology.map();
        for slot in part.slots {
            if map.shard(slot).is_some_and(|shard| shard.primary.address() == &part.address) {
                self.done[usize::from(slot)] = true;
            }
        }
    }

    async fn batch(&self, node: Arc<Node>, command: Command) -> Result<(Bytes, Vec<Bytes>), Error> {
        let deadline = self.cluster.limit(&command).and_then(Deadline::after);
        let reply = self.cluster.with_tries(Box::new(command), Target::Node(node), deadline, None).await?;
        let (cursor, keys): (Bytes, Vec<Bytes>) = reply.convert()?;
        if !cursor.iter().all(u8::is_ascii_digit) {
            let got = Value::Bulk(cursor).describe();
            return Err(UnexpectedReply { wanted: "a cursor", got }.into());
        }
        Ok((cursor, keys))
    }
}

/// After this many failures in a row, the last one is reported.
const MOST_FAILURES: u32 = 8;
