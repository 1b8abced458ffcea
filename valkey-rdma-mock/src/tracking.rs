//! Client-side caching: who is to hear that a key has changed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bytes::Bytes;

use crate::client::Client;
use valkey_rdma_server::Protocol;
use valkey_rdma_server::Reply;

/// What `CLIENT TRACKING ON` was told.
#[derive(Debug, Clone, Default)]
pub(super) struct TrackingOptions {
    /// The client that hears instead; 0: the client itself.
    pub(super) redirect: u64,
    /// Hears of all keys with these prefixes, read or not.
    pub(super) broadcast: Option<Vec<Bytes>>,
    pub(super) opt_in: bool,
    pub(super) opt_out: bool,
    pub(super) no_loop: bool,
    /// `CLIENT CACHING` for the next command.
    pub(super) caching: Option<bool>,
}

/// Which keys were read by clients that want to hear of their next change.
#[derive(Default)]
pub(super) struct Tracking {
    readers: HashMap<Bytes, BTreeSet<u64>>,
    /// The keys of each reader, always in step with `readers`.
    read: HashMap<u64, HashSet<Bytes>>,
    /// Bytes of the keys in `readers`, with what keeping them costs.
    bytes: usize,
    /// Clients that hear of all keys with their prefixes.
    broadcast_to: BTreeSet<u64>,
    /// All were told that everything has changed, which covers every key that the same command has changed.
    all_told: bool,
}

impl Tracking {
    /// Nobody is to hear of anything.
    pub(super) fn is_idle(&self) -> bool {
        self.readers.is_empty() && self.broadcast_to.is_empty()
    }

    /// Begins or ends tracking for a client.
    pub(super) fn set(&mut self, client: &mut Client, options: Option<TrackingOptions>) {
        self.broadcast_to.remove(&client.id);
        if options.as_ref().is_some_and(|options| options.broadcast.is_some()) {
            self.broadcast_to.insert(client.id);
        }
        client.tracking = options;
    }

    /// The command that may have called [`flushed`](Self::flushed) is over.
    pub(super) fn settled(&mut self) {
        self.all_told = false;
    }

    /// Forgets a client that has gone, and what it has read.
    pub(super) fn forget(&mut self, client: u64) {
        self.broadcast_to.remove(&client);
        for key in self.read.remove(&client).unwrap_or_default() {
            let Some(readers) = self.readers.get_mut(&key) else { continue };
            readers.remove(&client);
            self.bytes -= READER;
            if readers.is_empty() {
                self.readers.remove(&key);
                self.bytes -= key.len() + READER;
            }
        }
    }

    /// Takes out who has read a key.
    fn take_readers(&mut self, key: &Bytes) -> BTreeSet<u64> {
        let Some(readers) = self.readers.remove(key) else { return BTreeSet::new() };
        self.bytes -= key.len() + READER * (1 + readers.len());
        for reader in &readers {
            if let Some(keys) = self.read.get_mut(reader) {
                keys.remove(key);
                if keys.is_empty() {
                    self.read.remove(reader);
                }
            }
        }
        readers
    }

    /// Remembers that `client` has read `keys`, if it asked for that.
    pub(super) fn remember<'a>(&mut self, client: &Client, keys: impl Iterator<Item = &'a Bytes>) {
        let Some(options) = &client.tracking else { return };
        let wanted = match (options.opt_in, options.opt_out) {
            (true, _) => options.caching == Some(true),
            (_, true) => options.caching != Some(false),
            _ => true,
        };
        if options.broadcast.is_some() || !wanted {
            return;
        }
        for key in keys {
            let key = match self.readers.get_key_value(key) {
                Some((key, _)) => key.clone(),
                None => {
                    self.bytes += key.len() + READER;
                    Bytes::copy_from_slice(key)
                }
            };
            if self.readers.entry(key.clone()).or_default().insert(client.id) {
                self.bytes += READER;
                self.read.entry(client.id).or_default().insert(key);
            }
        }
        // As Valkey's tracking-table-max-keys: what is forgotten is reported as changed, by the caller of `overflow`.
    }

    /// Keys to be reported although nothing happened to them, because the table is full.
    pub(super) fn overflow(&mut self) -> Vec<Bytes> {
        let (mut keys, mut bytes) = (self.readers.len(), self.bytes);
        let mut excess = Vec::new();
        for (key, readers) in &self.readers {
            if keys <= MAX_KEYS && bytes <= MAX_BYTES {
                break;
            }
            keys -= 1;
            bytes -= key.len() + READER * (1 + readers.len());
            excess.push(key.clone());
        }
        excess
    }

    /// Bytes of the keys it remembers, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn keys(&self) -> usize {
        self.readers.len()
    }

    /// Tells all concerned that `keys` have changed by `author`'s hand.
    pub(super) fn changed(
        &mut self,
        keys: &BTreeSet<Bytes>,
        author: Option<u64>,
        clients: &BTreeMap<u64, Client>,
    ) {
        if self.all_told {
            return;
        }
        let spared =
            |client: &Client, options: &TrackingOptions| options.no_loop && author == Some(client.id);
        for key in keys {
            for id in self.take_readers(key) {
                if let Some(client) = clients.get(&id)
                    && let Some(options) = &client.tracking
                    && options.broadcast.is_none()
                    && !spared(client, options)
                {
                    tell(client, options, std::slice::from_ref(key), clients);
                }
            }
        }
        for client in self.broadcast_to.iter().filter_map(|id| clients.get(id)) {
            let Some(options) = &client.tracking else { continue };
            let Some(prefixes) = &options.broadcast else { continue };
            if spared(client, options) {
                continue;
            }
            let concerned = |key: &&Bytes| prefixes.iter().any(|prefix| key.starts_with(prefix));
            let concerned: Vec<Bytes> = keys.iter().filter(concerned).cloned().collect();
            if !concerned.is_empty() {
                tell(client, options, &concerned, clients);
            }
        }
    }

    /// Tells all who track anything that everything has changed.
    pub(super) fn flushed(&mut self, clients: &BTreeMap<u64, Client>) {
        self.readers = HashMap::new();
        self.read = HashMap::new();
        self.bytes = 0;
        self.all_told = true;
        for client in clients.values() {
            if let Some(options) = &client.tracking {
                send(client, options, Reply::NullArray, clients);
            }
        }
    }
}

fn tell(client: &Client, options: &TrackingOptions, keys: &[Bytes], clients: &BTreeMap<u64, Client>) {
    send(client, options, Reply::Array(keys.iter().cloned().map(Reply::Bulk).collect()), clients);
}

fn send(client: &Client, options: &TrackingOptions, what: Reply, clients: &BTreeMap<u64, Client>) {
    let listener = match options.redirect {
        0 => client,
        id => match clients.get(&id) {
            Some(listener) => listener,
            None => {
                if client.protocol == Protocol::Resp3 {
                    let id = Reply::Integer(i64::try_from(id).unwrap_or(i64::MAX));
                    client.pusher.push(Reply::Push(vec![Reply::bulk("tracking-redir-broken"), id]));
                }
                return;
            }
        },
    };
    if listener.protocol == Protocol::Resp3 {
        listener.pusher.push(Reply::Push(vec![Reply::bulk("invalidate"), what]));
    } else if options.redirect != 0 && listener.subscribed[0].contains(INVALIDATE) {
        listener.pusher.push(Reply::Push(vec![Reply::bulk("message"), Reply::bulk(INVALIDATE), what]));
    }
}

/// Where a RESP2 client hears of changes.
const INVALIDATE: &[u8] = b"__redis__:invalidate";

/// What a key costs beside its bytes, and each of its readers.
const READER: usize = 64;

/// What all keys together may cost, which Valkey does not limit.
const MAX_BYTES: usize = 256 << 20;

/// Valkey's `tracking-table-max-keys`.
const MAX_KEYS: usize = 1_000_000;
