//! [`Scan`]: the keys of a server or a cluster, batch by batch or as a stream. [`ElementScan`]: the elements of one key.

use bytes::Bytes;
use futures_core::Stream;
use futures_util::FutureExt;
use futures_util::stream;

pub(crate) mod cursor;
mod elements;
pub(crate) mod options;

pub use self::elements::ElementScan;
use self::options::{ScanOptions, batch, one_by_one};
use crate::client::{Client, Deployment};
use crate::cluster::ClusterScan;
use crate::command::{Command, ToArg};
use crate::error::Error;
use crate::server::Server;

/// The keys of the client's database: [`Client::scan`].
///
/// ```no_run
/// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
/// use futures_util::TryStreamExt;
///
/// let mut keys = client.scan().matching("user:*").count(1000).keys();
/// while let Some(key) = keys.try_next().await? {
///     println!("{}", key.escape_ascii());
/// }
/// # Ok(())
/// # }
/// ```
///
/// # What is promised
/// What SCAN promises: a key that exists from beginning to end is returned at least once, perhaps several times.
///
/// If the only server restarts or fails over in the middle of a scan, the cursor means another place there, so keys may be missed: begin
/// anew after [`ConnectionEvent::Reconnected`](crate::ConnectionEvent::Reconnected) where that matters.
///
/// In a cluster, that holds while slots move and nodes fail over. A node's slots count as scanned only if the node says at the end of its
/// part that it still has them, and the map of the end of the scan agrees; others are scanned on the node that has them
/// then. A node that fails in the middle is scanned again, or its successor, and so is a node whose connection was
/// replaced. The exception is a slot whose keys move one by one (CLUSTER SETSLOT and MIGRATE), to a node that was scanned before: keys
/// that moved before they were scanned are missed if the slot itself has not moved by the end of the scan. Atomic slot
/// migration (CLUSTER MIGRATESLOTS, since Valkey 9.0) moves a slot and its keys at once.
#[derive(Clone, Debug)]
#[must_use = "a scan asks for nothing until its batches or keys are read"]
pub struct Scan {
    of: Of,
    options: ScanOptions,
}

/// Whose keys.
#[derive(Clone, Debug)]
enum Of {
    Server {
        server: Server,
        /// `None` at the end.
        cursor: Option<Bytes>,
    },
    Cluster(ClusterScan),
}

impl Client {
    /// Begins a scan of all keys: SCAN, as often as it takes.
    pub fn scan(&self) -> Scan {
        let of = match &self.deployment {
            Deployment::Server(server) => {
                Of::Server { server: server.clone(), cursor: Some(Bytes::from_static(b"0")) }
            }
            Deployment::Cluster(cluster) => Of::Cluster(ClusterScan::new(cluster)),
        };
        Scan { of, options: ScanOptions::default() }
    }
}

impl Scan {
    /// Returns only keys that match a pattern: MATCH.
    pub fn matching(mut self, pattern: impl ToArg) -> Self {
        self.options.add("MATCH", pattern);
        self
    }

    /// How many keys a batch looks at, roughly: COUNT. The server's default is 10.
    pub fn count(mut self, keys: usize) -> Self {
        self.options.add("COUNT", keys);
        self
    }

    /// Returns only keys of a type, such as `string` or `hash`: TYPE.
    pub fn of_type(mut self, name: impl ToArg) -> Self {
        self.options.add("TYPE", name);
        self
    }

    /// The next batch, which may be empty; `None` at the end.
    ///
    /// # Errors
    /// As for any command. In a cluster also [`Uncovered`](crate::ClusterError::Uncovered) if a slot has no node, and
    /// [`ScanRestarted`](crate::ClusterError::ScanRestarted) if connections to a node live too short for its part; the time limits are those
    /// of one command, from the call or from the last node that was scanned to its end. The scan can go on after an error.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the batch is asked for again.
    pub async fn next_batch(&mut self) -> Result<Option<Vec<Bytes>>, Error> {
        match &mut self.of {
            Of::Server { cursor: None, .. } => Ok(None),
            Of::Server { server, cursor: Some(at) } => {
                let reply = server.call(self.options.add_to(Command::new("SCAN").arg(&*at))).await?;
                let (next, keys) = batch(reply)?;
                *at = next;
                if &at[..] == b"0" {
                    self.of = Of::Server { server: server.clone(), cursor: None };
                }
                Ok(Some(keys))
            }
            Of::Cluster(scan) => scan.next_batch(&self.options).boxed().await,
        }
    }

    /// The keys, one by one. The next batch is asked for when the keys of the last one were read. The stream ends after the first
    /// error.
    pub fn keys(self) -> impl Stream<Item = Result<Bytes, Error>> + Send + Unpin + use<> {
        one_by_one(stream::try_unfold(self, |mut scan| async move {
            Ok(scan.next_batch().await?.map(|batch| (batch, scan)))
        }))
    }
}
