//! [`Scan`]: the keys of a server, batch by batch or as a stream. [`ElementScan`]: the elements of one key.

use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream;

pub(crate) mod cursor;
mod elements;
pub(crate) mod options;
pub(crate) mod position;

pub use self::elements::ElementScan;
use self::options::{ScanOptions, batch, one_by_one};
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
#[derive(Clone, Debug)]
#[must_use = "a scan asks for nothing until its batches or keys are read"]
pub struct Scan {
    client: Server,
    options: ScanOptions,
    /// `None` at the end.
    cursor: Option<Bytes>,
}

impl Server {
    /// Begins a scan of all keys: SCAN, as often as it takes.
    pub fn scan(&self) -> Scan {
        Scan { client: self.clone(), options: ScanOptions::default(), cursor: Some(Bytes::from_static(b"0")) }
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
    /// As for any command. The scan can go on after an error.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the batch is asked for again.
    pub async fn next_batch(&mut self) -> Result<Option<Vec<Bytes>>, Error> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let reply = self.client.execute(self.options.add_to(Command::new("SCAN").arg(cursor))).await?;
        let (cursor, keys) = batch(reply)?;
        self.cursor = Some(cursor).filter(|cursor| &cursor[..] != b"0");
        Ok(Some(keys))
    }

    /// The keys, one by one. The next batch is asked for when the keys of the last one were read. The stream ends after the first
    /// error.
    pub fn keys(self) -> impl Stream<Item = Result<Bytes, Error>> + Send + Unpin + use<> {
        one_by_one(stream::try_unfold(self, |mut scan| async move {
            Ok(scan.next_batch().await?.map(|batch| (batch, scan)))
        }))
    }
}
