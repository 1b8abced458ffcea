//! [`Cache`]: values kept on the client until the server reports a change.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use indexmap::IndexMap;
use tokio::sync::broadcast;
use valkey_rdma_resp::{Protocol, Value};

use crate::client::Client;
use crate::command::Command;
use crate::config::Config;
use crate::endpoint::EndpointError;
use crate::error::Error;
use crate::events::ServerEvents;
use crate::into_endpoint::IntoEndpoint;
use crate::link::Push;
use crate::server::Server;
use valkey_rdma_transport::sync::{Mutex, MutexGuard, lock};

/// Capacity of the queue of each [`Invalidations`].
const WAITING: usize = 1024;

/// A client that caches what it has read, and drops an entry when the server reports a change (CLIENT TRACKING). Only
/// [`get`](Self::get) is cached.
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
/// A stale value can be returned until the server's message about its change arrives. It is not returned any more
/// after a later reply on the same connection, because messages are handled before later replies. After a lost
/// connection, the cache is cleared. An expired key counts as changed when the server removes it.
///
/// A server reports no change for SWAPDB: the cache then keeps the values of the database before, and no client can notice. After
/// a SWAPDB, connect the cache anew.
///
/// A server reports a connection's own writes just *after* the reply to them. To be sure to read your own write,
/// [`forget`](Self::forget) the key.
#[derive(Clone)]
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
    /// Any key may have changed: the database was flushed, the connection was lost, or this receiver was too slow and
    /// messages were dropped.
    All,
}

/// A stream of [`Invalidation`]s: [`Cache::invalidations`].
#[derive(Debug)]
pub struct Invalidations {
    receiver: broadcast::Receiver<Invalidation>,
}

/// Counters of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Values found in the cache.
    pub hits: u64,
    /// Values requested from the server.
    pub misses: u64,
    /// Keys reported as changed, and whole flushes.
    pub invalidations: u64,
    /// Values in the cache now.
    pub entries: usize,
}

impl Cache {
    /// Connects a client and keeps at most `capacity` values, at least 1. When the cache is full, a new value replaces
    /// one chosen at random.
    ///
    /// # Errors
    /// Same errors as [`Client::connect_with`]. An endpoint with RESP2 is refused, because RESP2 has no push messages.
    ///
    /// # Cancel safety
    /// As [`Client::connect`].
    pub async fn connect(
        endpoint: impl IntoEndpoint,
        config: &Config,
        capacity: usize,
    ) -> Result<Self, Error> {
        let endpoint = endpoint.into_endpoint()?;
        endpoint.check()?;
        endpoint.check_single()?;
        if endpoint.protocol() != Protocol::Resp3 {
            return Err(EndpointError::NeedsResp3.into());
        }
        let config = config.clone().tracking(true);
        let store = Arc::new(Store::new(capacity.max(1)));
        let hook = {
            let store = store.clone();
            Arc::new(move |push: Push<'_>| store.take(&push))
        };
        let connector = Server::connector_for(endpoint, config);
        let client = Server::start(connector, Some(hook), ServerEvents::alone()).await?.into();
        Ok(Self { client, store })
    }

    /// Returns the value of a key, as GET does.
    ///
    /// # Errors
    /// As for any command.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>, Error> {
        let key = key.as_ref();
        // A runtime that shuts down drops the connection without an event.
        if self.client.is_closed() {
            self.store.kept().entries.clear();
        }
        let epoch = match self.store.look_up(key) {
            Ok(value) => return Ok(value),
            Err(epoch) => epoch,
        };
        let lookup = PendingLookup { store: &self.store, key, epoch };
        let value: Option<Bytes> = self.client.query(Command::new("GET").arg(key)).await?;
        // Copied, because a slice would keep the whole receive buffer alive.
        let value = value.map(|bytes| Bytes::copy_from_slice(&bytes));
        lookup.keep(&value);
        Ok(value)
    }

    /// Drops the entry of a key: the next [`get`](Self::get) asks the server.
    pub fn forget(&self, key: impl AsRef<[u8]>) {
        self.store.kept().entries.swap_remove(key.as_ref());
    }

    /// The underlying client, for all other commands. Its writes invalidate entries as other clients' writes do.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Invalidations from now on, of keys read through [`get`](Self::get) or by commands of the client; not of those read on its dedicated
    /// connections, as [`Client::get_into`] does.
    #[must_use]
    pub fn invalidations(&self) -> Invalidations {
        Invalidations { receiver: self.store.subscribers.subscribe() }
    }

    /// The counters so far.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let kept = self.store.kept();
        let entries = kept.entries.values().filter(|entry| matches!(entry, Entry::Value(_))).count();
        CacheStats { entries, ..kept.stats }
    }
}

/// Shows neither keys nor values: they may be secret.
impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("client", &self.client)
            .field("capacity", &self.store.capacity)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Invalidations {
    /// The next invalidation. `None` once the cache was dropped.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Invalidation> {
        match self.receiver.recv().await {
            Ok(invalidation) => Some(invalidation),
            Err(broadcast::error::RecvError::Lagged(_)) => {
                // `All` includes everything that is still queued.
                self.receiver = self.receiver.resubscribe();
                Some(Invalidation::All)
            }
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

struct Store {
    kept: Mutex<Kept>,
    capacity: usize,
    subscribers: broadcast::Sender<Invalidation>,
}

#[derive(Default)]
struct Kept {
    entries: IndexMap<Bytes, Entry>,
    /// Of the next lookup.
    epoch: u64,
    /// The counters; `entries` is counted when they are read.
    stats: CacheStats,
}

enum Entry {
    /// Requested from the server. A change before the answer removes this entry, and the answer is not kept.
    Pending(u64),
    /// The value; `None` for a key that does not exist.
    Value(Option<Bytes>),
}

/// A pending lookup; removes its placeholder when dropped without a result.
struct PendingLookup<'a> {
    store: &'a Store,
    key: &'a [u8],
    epoch: u64,
}

impl PendingLookup<'_> {
    fn keep(self, value: &Option<Bytes>) {
        if let Some(entry) = self.store.kept().entries.get_mut(self.key)
            && entry.is_pending(self.epoch)
        {
            *entry = Entry::Value(value.clone());
        }
    }
}

impl Drop for PendingLookup<'_> {
    fn drop(&mut self) {
        let entries = &mut self.store.kept().entries;
        if entries.get(self.key).is_some_and(|entry| entry.is_pending(self.epoch)) {
            entries.swap_remove(self.key);
        }
    }
}

impl Entry {
    fn is_pending(&self, epoch: u64) -> bool {
        matches!(self, Self::Pending(pending) if *pending == epoch)
    }
}

impl Store {
    fn new(capacity: usize) -> Self {
        Self { kept: Mutex::default(), capacity, subscribers: broadcast::Sender::new(WAITING) }
    }

    /// The cached value, or the epoch of a new lookup.
    fn look_up(&self, key: &[u8]) -> Result<Option<Bytes>, u64> {
        let Kept { entries, epoch: next, stats } = &mut *self.kept();
        if let Some(Entry::Value(value)) = entries.get(key) {
            stats.hits += 1;
            return Ok(value.clone());
        }
        stats.misses += 1;
        let epoch = *next;
        *next += 1;
        if !entries.contains_key(key) && entries.len() >= self.capacity {
            // Each with the same chance, so that no entry can stay for ever.
            let any = fastrand::usize(..entries.len());
            entries.swap_remove_index(any);
        }
        entries.insert(Bytes::copy_from_slice(key), Entry::Pending(epoch));
        Err(epoch)
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
        let mut kept = self.kept();
        match &invalidation {
            Invalidation::All => {
                kept.entries.clear();
                kept.stats.invalidations += 1;
            }
            Invalidation::Keys(keys) => {
                for key in keys {
                    kept.entries.swap_remove(key);
                }
                kept.stats.invalidations += keys.len() as u64;
            }
        }
        drop(kept);
        // There may be no receiver.
        let _listeners = self.subscribers.send(invalidation);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::tests::pair;

    #[tokio::test]
    async fn debug_output_holds_neither_keys_nor_values() {
        let (client, _door, _peer) = pair(&Config::default()).await;
        let store = Arc::new(Store::new(10));
        let epoch = store.look_up(b"key:hush").expect_err("not known");
        PendingLookup { store: &store, key: b"key:hush", epoch }.keep(&Some(Bytes::from_static(b"hush")));
        let text = format!("{:?}", Cache { client, store });
        assert!(text.contains("capacity: 10") && text.contains("entries: 1"), "{text}");
        assert!(!text.contains("hush"), "{text}");
    }

    #[test]
    fn a_question_without_an_answer_leaves_nothing() {
        let store = Store::new(10);
        let ask = || store.look_up(b"k").expect_err("not known");
        let (first, second) = (ask(), ask());
        drop(PendingLookup { store: &store, key: b"k", epoch: first });
        assert_eq!(store.kept().entries.len(), 1, "another asks");
        drop(PendingLookup { store: &store, key: b"k", epoch: second });
        assert_eq!(store.kept().entries.len(), 0);
        let epoch = ask();
        PendingLookup { store: &store, key: b"k", epoch }.keep(&None);
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
                    Err(epoch) => PendingLookup { store: &store, key: key.as_bytes(), epoch }.keep(&None),
                }
            }
            assert!(store.kept().entries.len() <= CAPACITY);
        }
        assert!(hits.iter().all(|&hits| hits > 0), "{hits:?}");
    }
}
