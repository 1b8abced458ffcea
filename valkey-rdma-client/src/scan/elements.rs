//! [`ElementScan`]: the elements of a hash, a set or a sorted set, batch by batch or as a stream.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::FutureExt;
use futures_util::stream;
use valkey_rdma_resp::FromValue;

use super::cursor::Cursor;
use super::options::{ScanOptions, batch, one_by_one};
use crate::client::{Client, Deployment};
use crate::command::{Command, ToArg};
use crate::error::Error;

/// The elements of one key: [`Client::scan_hash`], [`Client::scan_set`], [`Client::scan_sorted_set`].
///
/// ```no_run
/// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
/// use futures_util::TryStreamExt;
///
/// let mut basket = client.scan_hash("basket:7").matching("book:*").count(1000).elements();
/// while let Some((article, count)) = basket.try_next().await? {
///     println!("{}: {}", article.escape_ascii(), count.escape_ascii());
/// }
/// # Ok(())
/// # }
/// ```
///
/// # What is promised
/// What HSCAN, SSCAN and ZSCAN promise: an element that exists from beginning to end is returned at least once, perhaps
/// several times. Servers return small collections in one batch.
///
/// In a cluster, this holds while the slot of the key moves or its primary fails over: the scan begins anew on the next
/// node, because cursors are valid on one server only. It also begins anew on each new connection, because a restarted
/// server may have the same address.
///
/// If the only server restarts or fails over in the middle of a scan, the cursor means another place there, so elements may be missed: begin
/// anew after [`ConnectionEvent::Reconnected`](crate::ConnectionEvent::Reconnected) where that matters.
#[derive(Clone)]
#[must_use = "a scan asks for nothing until its batches or elements are read"]
pub struct ElementScan<T> {
    client: Client,
    /// HSCAN, SSCAN or ZSCAN.
    name: &'static str,
    key: Bytes,
    options: ScanOptions,
    /// `None` at the end.
    cursor: Option<Cursor>,
    element: PhantomData<fn() -> T>,
}

impl<T: FromValue + Send + 'static> ElementScan<T> {
    fn new(client: &Client, name: &'static str, key: impl AsRef<[u8]>) -> Self {
        Self {
            client: client.clone(),
            name,
            key: Bytes::copy_from_slice(key.as_ref()),
            options: ScanOptions::default(),
            cursor: Some(Cursor::default()),
            element: PhantomData,
        }
    }

    /// Returns only elements whose name, which is the field of a hash or the member of a set, matches a pattern: MATCH.
    pub fn matching(mut self, pattern: impl ToArg) -> Self {
        self.options.add("MATCH", pattern);
        self
    }

    /// How many elements a batch looks at, roughly: COUNT. The server's default is 10.
    pub fn count(mut self, elements: usize) -> Self {
        self.options.add("COUNT", elements);
        self
    }

    /// The next batch, which may be empty; `None` at the end. Of a key that does not exist, the first batch is empty.
    ///
    /// # Errors
    /// As for any command: [`Error::Server`] if the key has another type, for example. In a cluster,
    /// [`ScanRestarted`](crate::ClusterError::ScanRestarted) if connections live too short for the scan. The scan can go on
    /// after an error.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the batch is asked for again.
    pub async fn next_batch(&mut self) -> Result<Option<Vec<T>>, Error> {
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        let Self { name, ref key, ref options, .. } = *self;
        let command_at = |at: &[u8]| options.add_to(Command::new(name).arg(key).arg(at));
        let reply = match &self.client.deployment {
            Deployment::Server(server) => server.call(command_at(cursor.get())).await?,
            Deployment::Cluster(cluster) => cluster.scan_key(key, cursor, command_at).boxed().await?,
        };
        let (next, elements) = batch(reply)?;
        if !cursor.advance(next) {
            self.cursor = None;
        }
        Ok(Some(elements))
    }

    /// The elements, one by one. The next batch is asked for when the elements of the last one were read. The stream ends
    /// after the first error.
    pub fn elements(self) -> impl Stream<Item = Result<T, Error>> + Send + Unpin + use<T> {
        one_by_one(stream::try_unfold(self, |mut scan| async move {
            Ok(scan.next_batch().await?.map(|batch| (batch, scan)))
        }))
    }
}

/// Does not show the key: it may be secret.
impl<T> fmt::Debug for ElementScan<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElementScan")
            .field("client", &self.client)
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl ElementScan<(Bytes, Bytes)> {
    /// Returns only the fields of a hash, without their values: NOVALUES, since Valkey 8.0.
    pub fn fields(mut self) -> ElementScan<Bytes> {
        self.options.add_flag("NOVALUES");
        let Self { client, name, key, options, cursor, .. } = self;
        ElementScan { client, name, key, options, cursor, element: PhantomData }
    }
}

impl Client {
    /// Begins a scan of the fields of a hash and their values: HSCAN, as often as it takes.
    pub fn scan_hash(&self, key: impl AsRef<[u8]>) -> ElementScan<(Bytes, Bytes)> {
        ElementScan::new(self, "HSCAN", key)
    }

    /// Begins a scan of the members of a set: SSCAN, as often as it takes.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
    /// let mut scan = client.scan_set("readers").count(1000);
    /// while let Some(members) = scan.next_batch().await? {
    ///     println!("{} members", members.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan_set(&self, key: impl AsRef<[u8]>) -> ElementScan<Bytes> {
        ElementScan::new(self, "SSCAN", key)
    }

    /// Begins a scan of the members of a sorted set and their scores: ZSCAN, as often as it takes.
    pub fn scan_sorted_set(&self, key: impl AsRef<[u8]>) -> ElementScan<(Bytes, f64)> {
        ElementScan::new(self, "ZSCAN", key)
    }
}
