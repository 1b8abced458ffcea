//! [`ConnectionRegistry`]: the connections that a client has at the moment, whatever for, so that they can be seen and waited for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use valkey_rdma_transport::Monitor;

use crate::stats::{ConnectionInfo, ConnectionStatus, Counters, Purpose, State};
use crate::sync::lock;

/// The list. Each connection is on it until it is closed.
#[derive(Default)]
pub(crate) struct ConnectionRegistry {
    entries: Mutex<Entries>,
    /// Told of every connection that is gone.
    left: Notify,
}

#[derive(Default)]
struct Entries {
    /// In the order in which they were made.
    connections: BTreeMap<u64, Entry>,
    made: u64,
}

struct Entry {
    purpose: Purpose,
    info: Arc<ConnectionInfo>,
    monitor: Option<Monitor>,
}

/// A connection's place on the list. Dropping it takes the connection off.
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
        let entry = Entry { purpose, info, monitor };
        let mut entries = self.entries();
        let number = entries.made;
        entries.made += 1;
        entries.connections.insert(number, entry);
        Registration { registry: self.clone(), number }
    }

    /// Those that are not shared: of the shared ones, their links know more.
    pub(crate) fn not_shared(&self) -> Vec<ConnectionStatus> {
        let entries = self.entries();
        let others = entries.connections.values().filter(|entry| entry.purpose != Purpose::Shared);
        let status = others.map(|entry| ConnectionStatus {
            purpose: entry.purpose,
            state: State::Connected,
            info: entry.info.clone(),
            counters: Counters::default(),
            transport: entry.monitor.as_ref().map(Monitor::stats),
        });
        status.collect()
    }

    /// Waits until no connection is at its end and still open.
    pub(crate) async fn drained(&self) {
        loop {
            let left = self.left.notified();
            if !self.entries().connections.values().any(|entry| entry.purpose == Purpose::Draining) {
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
    /// Says what the connection is for from now on.
    pub(crate) fn set_purpose(&self, purpose: Purpose) {
        if let Some(entry) = self.registry.entries().connections.get_mut(&self.number) {
            entry.purpose = purpose;
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.entries().connections.remove(&self.number);
        self.registry.left.notify_waiters();
    }
}
