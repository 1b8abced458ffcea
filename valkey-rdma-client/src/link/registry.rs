//! [`ConnectionRegistry`]: all open connections of a client, for its status and for `close`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use valkey_rdma_transport::Monitor;

use crate::stats::{ConnectionInfo, ConnectionStatus, Counters, Purpose, State};
use valkey_rdma_transport::sync::lock;

/// The registry. It lists each connection until it is closed, or until the next one replaces it.
#[derive(Default)]
pub(crate) struct ConnectionRegistry {
    entries: Mutex<Entries>,
    /// Notified of every connection that closes.
    left: Notify,
}

#[derive(Default)]
struct Entries {
    /// In the order of creation.
    connections: BTreeMap<u64, Entry>,
    made: u64,
}

struct Entry {
    purpose: Purpose,
    info: Arc<ConnectionInfo>,
    monitor: Option<Monitor>,
    state: State,
}

/// Lists a connection. Dropping it removes the entry.
pub(crate) struct Registration {
    registry: Arc<ConnectionRegistry>,
    number: u64,
}

impl ConnectionRegistry {
    /// Lists a connection until the registration is dropped.
    pub(crate) fn register(
        self: &Arc<Self>,
        info: Arc<ConnectionInfo>,
        monitor: Option<Monitor>,
        purpose: Purpose,
    ) -> Registration {
        let entry = Entry { purpose, info, monitor, state: State::Connected };
        let mut entries = self.entries();
        let number = entries.made;
        entries.made += 1;
        entries.connections.insert(number, entry);
        Registration { registry: self.clone(), number }
    }

    /// The connections that are not shared. Their multiplexers know more about the shared ones.
    pub(crate) fn not_shared(&self) -> Vec<ConnectionStatus> {
        let entries = self.entries();
        let others = entries.connections.values().filter(|entry| entry.purpose != Purpose::Shared);
        let status = others.map(|entry| ConnectionStatus {
            purpose: entry.purpose,
            state: entry.state,
            info: entry.info.clone(),
            counters: Counters::default(),
            stats: entry.monitor.as_ref().map(Monitor::stats),
        });
        status.collect()
    }

    /// Waits until no connection is draining, or carries out direct calls.
    pub(crate) async fn drained(&self) {
        let busy = |entry: &Entry| matches!(entry.purpose, Purpose::Draining | Purpose::Bulk);
        loop {
            let left = self.left.notified();
            if !self.entries().connections.values().any(busy) {
                return;
            }
            left.await;
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        lock(&self.entries)
    }
}

impl Registration {
    /// Changes the purpose of the connection.
    pub(crate) fn set_purpose(&self, purpose: Purpose) {
        if let Some(entry) = self.registry.entries().connections.get_mut(&self.number) {
            entry.purpose = purpose;
        }
    }

    /// The connection is lost, and its owner makes the next one.
    pub(crate) fn set_reconnecting(&self) {
        if let Some(entry) = self.registry.entries().connections.get_mut(&self.number) {
            entry.state = State::Reconnecting;
            entry.monitor = None;
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.entries().connections.remove(&self.number);
        self.registry.left.notify_waiters();
    }
}
