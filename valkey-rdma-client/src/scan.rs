//! [`Scan`]: the keys of a server, batch by batch or as a stream.

use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream::{self, TryStreamExt};
use valkey_rdma_resp::{UnexpectedReply, Value};

use crate::client::Client;
use crate::error::Error;
use crate::resp::{Command, ToArg};

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
    client: Client,
    options: ScanOptions,
    /// `None` at the end.
    cursor: Option<Bytes>,
}

impl Client {
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
        let reply = self.client.execute(self.options.command(cursor)).await?;
        let (cursor, keys) = batch(reply)?;
        self.cursor = Some(cursor).filter(|cursor| &cursor[..] != b"0");
        Ok(Some(keys))
    }

    /// The keys, one by one. The next batch is asked for when the keys of the last one were read. The stream ends after the first
    /// error.
    pub fn keys(self) -> impl Stream<Item = Result<Bytes, Error>> + Send + Unpin + use<> {
        keys(stream::try_unfold(self, |mut scan| async move {
            Ok(scan.next_batch().await?.map(|batch| (batch, scan)))
        }))
    }
}

/// Options of SCAN.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScanOptions(Vec<Command>);

impl ScanOptions {
    pub(crate) fn add(&mut self, name: &str, value: impl ToArg) {
        self.0.push(Command::new(name).arg(value));
    }

    pub(crate) fn command(&self, cursor: &Bytes) -> Command {
        self.0.iter().fold(Command::new("SCAN").arg(cursor), Command::followed_by).idempotent()
    }
}

/// Cursor and keys of a reply to SCAN.
pub(crate) fn batch(reply: Value) -> Result<(Bytes, Vec<Bytes>), Error> {
    let (cursor, keys): (Bytes, Vec<Bytes>) = reply.convert()?;
    if !cursor.iter().all(u8::is_ascii_digit) {
        let got = Value::Bulk(cursor).describe();
        return Err(UnexpectedReply { wanted: "a cursor", got }.into());
    }
    Ok((cursor, keys))
}

/// The keys of batches, one by one.
pub(crate) fn keys(
    batches: impl Stream<Item = Result<Vec<Bytes>, Error>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Error>> + Send + Unpin + 'static {
    Box::pin(batches.map_ok(|batch| stream::iter(batch.into_iter().map(Ok))).try_flatten())
}
