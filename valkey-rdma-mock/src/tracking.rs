//! Client-side caching: which clients get an invalidation message when a key changes.

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;

use crate::client::{Client, Clients};
use valkey_rdma_server::{Protocol, Reply};

/// Which keys were read by clients with `CLIENT TRACKING ON`.
#[derive(Default)]
pub(crate) struct Tracking {
    readers: HashMap<Bytes, BTreeSet<u64>>,
    /// The keys of each reader, always in step with `readers`.
    read: HashMap<u64, HashSet<Bytes>>,
    /// All keys were invalidated, which covers every key that the same command has changed.
    flushed: bool,
}

impl Tracking {
    /// Whether no client waits for an invalidation.
    pub(crate) fn is_idle(&self) -> bool {
        self.readers.is_empty()
    }

    /// Called after the command that may have called [`flush`](Self::flush).
    pub(crate) fn settled(&mut self) {
        self.flushed = false;
    }

    /// Removes a client that has disconnected, and the keys that it read.
    pub(crate) fn forget(&mut self, client: u64) {
        for key in self.read.remove(&client).unwrap_or_default() {
            let Some(readers) = self.readers.get_mut(&key) else { continue };
            readers.remove(&client);
            if readers.is_empty() {
                self.readers.remove(&key);
            }
        }
    }

    /// Removes and returns the clients that have read a key.
    fn take_readers(&mut self, key: &Bytes) -> BTreeSet<u64> {
        let readers = self.readers.remove(key).unwrap_or_default();
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

    /// Remembers that `client` has read `keys`.
    pub(crate) fn remember<'a>(&mut self, client: u64, keys: impl Iterator<Item = &'a Bytes>) {
        for key in keys {
            let key = match self.readers.get_key_value(key) {
                Some((key, _)) => key.clone(),
                None => Bytes::copy_from_slice(key),
            };
            if self.readers.entry(key.clone()).or_default().insert(client) {
                self.read.entry(client).or_default().insert(key);
            }
        }
    }

    /// How many keys may have to be invalidated.
    pub(crate) fn keys(&self) -> usize {
        self.readers.len()
    }

    /// Sends invalidations for keys that have changed.
    pub(crate) fn changed(&mut self, keys: &BTreeSet<Bytes>, clients: &Clients) {
        if self.flushed {
            return;
        }
        for key in keys {
            for id in self.take_readers(key) {
                if let Some(client) = clients.get(&id) {
                    invalidate(client, Reply::Array(vec![Reply::Bulk(key.clone())]));
                }
            }
        }
    }

    /// Sends invalidations of all keys.
    pub(crate) fn flush(&mut self, clients: &Clients) {
        *self = Self { flushed: true, ..Self::default() };
        for client in clients.values() {
            invalidate(client, Reply::NullArray);
        }
    }
}

/// RESP2 connections have no push messages, so they receive no invalidations.
fn invalidate(client: &Client, keys: Reply) {
    if client.tracking && client.protocol == Protocol::Resp3 {
        client.pusher.push(Reply::Push(vec![Reply::bulk("invalidate"), keys]));
    }
}
