//! [`Cache`]: values kept here for as long as the server says that they have not changed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use indexmap::IndexMap;
use tokio::sync::broadcast;
use valkey_rdma_resp::{Protocol, Value};

use crate::client::Client;
use crate::config::Config;
use crate::connection::Connector;
use crate::endpoint::{Endpoint, EndpointError};
use crate::error::Error;
use crate::multiplexer::Push;
use crate::resp::Command;

/// Invalidations that wait for a receiver that does not take them.
const WAITING: usize = 1024;

/// A client that remembers what it has read, and forgets it when the server says that it has changed (CLIENT
/// TRACKING). Only [`get`](Self::get) is remembered.
///
/// ```no_run
/// # async fn example() -> Result<(), valkey_rdma_client::Error> {
/// use valkey_rdma_client::{Cache, Config};
///
/// let cache = Cache::connect("rdma://10.0.0.7", &Config::default(), 10_000).await?;
/// let price = cache.get("price:17").await?; // asks the server
/// let price = cache.get("price:17").await?; // does not, unless it has changed
/// cache.client().command(["SET", "price:17", "99"]).await?;
/// # Ok(())
/// # }
/// ```
///
/// # How stale a value can be
/// A value can be returned for as long as the server's message about its change is under way. Once any reply is here
/// that the server sent after that message on the same connection, the old value is not returned any more: messages
/// are looked at before later replies. After a lost connection everything is forgotten. A key that expires counts as
/// changed when the server removes it.
///
/// A server tells of a connection's own writes just *after* the reply to them. To read your own write for sure,
/// [`forget`](Self::forget) the key.
#[derive(Clone, Debug)]
pub struct Cache {
    client: Client,
    store: Arc<Store>,
}

/// A change on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invalidation {
    /// These keys have changed.
    Keys(Vec<Bytes>),
    /// Anything may have: the database was flushed, the connection was lost, or this receiver was too slow and
    /// messages were dropped.
    All,
}

/// A stream of [`Invalidation`]s: [`Cache::invalidations`].
#[derive(Debug)]
pub struct Invalidations {
    receiver: broadcast::Receiver<Invalidation>,
}

/// What a cache has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Values that were here.
    pub hits: u64,
    /// Values that the server was asked for.
    pub misses: u64,
    /// Keys that the server said had changed, and whole flushes.
    pub invalidations: u64,
    /// Values here now.
    pub entries: usize,
}

impl Cache {
    /// Connects a client of its own, and keeps at most `capacity` values, at least 1. When it is full, a new value
    /// replaces one chosen at random.
    ///
    /// # Errors
    /// As [`Client::connect_with`]; an endpoint with RESP2 is refused, which has no messages beside the replies.
    ///
    /// # Cancel safety
    /// As [`Client::connect`].
    pub async fn connect(
        endpoint: impl TryInto<Endpoint, Error: Into<Error>>,
        config: &Config,
        capacity: usize,
    ) -> Result<Self, Error> {
        let endpoint = endpoint.try_into().map_err(Into::into)?;
        endpoint.check()?;
        if endpoint.protocol() != Protocol::Resp3 {
            return Err(EndpointError::NeedsResp3.into());
        }
        let mut config = config.clone();
        config.tracking(true);
        let store = Arc::new(Store::new(capacity.max(1)));
        let hook = {
            let store = store.clone();
            Arc::new(move |push: Push<'_>| store.take(&push))
        };
        let client = Client::start(Connector::new(endpoint, config), Some(hook)).await?;
        Ok(Self { client, store })
    }

    /// The value of a key, as GET returns it.
    ///
    /// # Errors
    /// As for any command.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>, Error> {
        let key = key.as_ref();
        // A runtime that shuts down takes the connection away without a word.
        if self.client.is_closed() {
            self.store.entries().clear();
        }
        let ticket = match self.store.look_up(key) {
            Ok(value) => return Ok(value),
            Err(ticket) => ticket,
        };
        let asking = PendingLookup { store: &self.store, key, ticket };
        let value: Option<Bytes> =
            self.client.execute(Command::new("GET").arg(key).idempotent()).await?.try_into()?;
        // A copy of its own: a slice would keep the whole receive buffer.
        let value = value.map(|bytes| Bytes::copy_from_slice(&bytes));
        asking.keep(&value);
        Ok(value)
    }

    /// Forgets what is known of a key: the next [`get`](Self::get) asks the server.
    pub fn forget(&self, key: impl AsRef<[u8]>) {
        self.store.entries().swap_remove(key.as_ref());
    }

    /// The client below, for everything else. What it writes is forgotten here as what others write is.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What changes on the server from now on, of the keys that were read through [`get`](Self::get) or the client.
    #[must_use]
    pub fn invalidations(&self) -> Invalidations {
        Invalidations { receiver: self.store.told.subscribe() }
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let store = &self.store;
        let entries = store.entries().values().filter(|entry| matches!(entry, Entry::Value(_))).count();
        CacheStats {
            hits: read(&store.hits),
            misses: read(&store.misses),
            invalidations: read(&store.invalidations),
            entries,
        }
    }
}

impl Invalidations {
    /// The next one. None once the cache is gone.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Invalidation> {
        match self.receiver.recv().await {
            Ok(invalidation) => Some(invalidation),
            Err(broadcast::error::RecvError::Lagged(_)) => {
                // What is still queued says no more than this does.
                self.receiver = self.receiver.resubscribe();
                Some(Invalidation::All)
            }
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

#[derive(Debug)]
struct Store {
    entries: Mutex<IndexMap<Bytes, Entry>>,
    capacity: usize,
    tickets: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    invalidations: AtomicU64,
    told: broadcast::Sender<Invalidation>,
}

#[derive(Debug)]
enum Entry {
    /// The server was asked; a change before the answer is here takes this away, and the answer is not kept.
    Asked(u64),
    /// The answer; none for a key that does not exist.
    Value(Option<Bytes>),
}

/// A value that the server was asked for. Dropped without one, as a call that fails or is dropped, it leaves nothing.
struct PendingLookup<'a> {
    store: &'a Store,
    key: &'a [u8],
    ticket: u64,
}

impl PendingLookup<'_> {
    fn keep(self, value: &Option<Bytes>) {
        if let Some(entry) = self.store.entries().get_mut(self.key)
            && entry.is_asked(self.ticket)
        {
            *entry = Entry::Value(value.clone());
        }
    }
}

impl Drop for PendingLookup<'_> {
    fn drop(&mut self) {
        let mut entries = self.store.entries();
        if entries.get(self.key).is_some_and(|entry| entry.is_asked(self.ticket)) {
            entries.swap_remove(self.key);
        }
    }
}

impl Entry {
    fn is_asked(&self, ticket: u64) -> bool {
        matches!(self, Self::Asked(asked) if *asked == ticket)
    }
}

impl Store {
    fn new(capacity: usize) -> Self {
        Self {
            entries: Mutex::default(),
            capacity,
            tickets: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            invalidations: AtomicU64::new(0),
            told: broadcast::Sender::new(WAITING),
        }
    }

    /// The value, or a ticket for whoever asks the server now.
    fn look_up(&self, key: &[u8]) -> Result<Option<Bytes>, u64> {
        let mut entries = self.entries();
        if let Some(Entry::Value(value)) = entries.get(key) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(value.clone());
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        if !entries.contains_key(key) && entries.len() >= self.capacity {
            // Any of them with the same chance: none can stay for ever, and the order of hashes decides nothing.
            let any = fastrand::usize(..entries.len());
            entries.swap_remove_index(any);
        }
        entries.insert(Bytes::copy_from_slice(key), Entry::Asked(ticket));
        Err(ticket)
    }

    fn take(&self, push: &Push<'_>) {
        let invalidation = match push {
            Push::Gap => Invalidation::All,
            Push::Message([kind, Value::Nil, ..]) if kind.as_str() == Some("invalidate") => Invalidation::All,
            Push::Message([kind, Value::Array(keys), ..]) if kind.as_str() == Some("invalidate") => {
                Invalidation::Keys(
                    keys.iter().filter_map(Value::as_bytes).map(Bytes::copy_from_slice).collect(),
                )
            }
            Push::Message(_) => return,
        };
        match &invalidation {
            Invalidation::All => {
                self.entries().clear();
                self.invalidations.fetch_add(1, Ordering::Relaxed);
            }
            Invalidation::Keys(keys) => {
                let mut entries = self.entries();
                for key in keys {
                    entries.swap_remove(key);
                }
                self.invalidations.fetch_add(keys.len() as u64, Ordering::Relaxed);
            }
        }
        // Nobody may be listening.
        let _listeners = self.told.send(invalidation);
    }

    fn entries(&self) -> MutexGuard<'_, IndexMap<Bytes, Entry>> {
        // Valid after every step, so a panic elsewhere does not spoil it.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_without_an_answer_leaves_nothing() {
        let store = Store::new(10);
        let ask = || store.look_up(b"k").expect_err("not known");
        let (first, second) = (ask(), ask());
        drop(PendingLookup { store: &store, key: b"k", ticket: first });
        assert_eq!(store.entries().len(), 1, "another asks");
        drop(PendingLookup { store: &store, key: b"k", ticket: second });
        assert_eq!(store.entries().len(), 0);
        let ticket = ask();
        PendingLookup { store: &store, key: b"k", ticket }.keep(&None);
        assert_eq!(store.look_up(b"k"), Ok(None));
    }

    /// Twice as many keys as fit, read in turn: every one of them must be found now and then.
    #[test]
    fn every_key_has_a_chance_to_stay() {
        const CAPACITY: usize = 100;
        let store = Store::new(CAPACITY);
        let keys: Vec<String> = (0..2 * CAPACITY).map(|n| format!("key:{n}")).collect();
        let mut hits = vec![0; keys.len()];
        for _ in 0..400 {
            for (key, hits) in keys.iter().zip(&mut hits) {
                match store.look_up(key.as_bytes()) {
                    Ok(_) => *hits += 1,
                    Err(ticket) => PendingLookup { store: &store, key: key.as_bytes(), ticket }.keep(&None),
                }
            }
            assert!(store.entries().len() <= CAPACITY);
        }
        assert!(hits.iter().all(|&hits| hits > 0), "{hits:?}");
    }
}
