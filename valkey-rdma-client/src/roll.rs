//! [`Roll`]: the connections that a client has at the moment, whatever for, so that they can be seen and waited for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use valkey_rdma_transport::Monitor;

use crate::info::{ConnectionInfo, ConnectionStatus, Counters, Purpose, State};
use crate::wire::Wire;

/// The list. Each connection is on it until it is closed.
#[derive(Default)]
pub(crate) struct Roll {
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
pub(crate) struct Place {
    roll: Arc<Roll>,
    number: u64,
}

impl Roll {
    pub(crate) fn enter(self: &Arc<Self>, wire: &Wire, purpose: Purpose) -> Place {
        let entry = Entry { purpose, info: wire.info.clone(), monitor: wire.monitor.clone() };
        let mut entries = self.entries();
        let number = entries.made;
        entries.made += 1;
        entries.connections.insert(number, entry);
        Place { roll: self.clone(), number }
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
    pub(crate) async fn until_parted(&self) {
        loop {
            let left = self.left.notified();
            if !self.entries().connections.values().any(|entry| entry.purpose == Purpose::Parting) {
                return;
            }
            left.await;
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        // Valid after every step, so a panic elsewhere does not spoil it.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Says what the connection is for from now on.
    pub(crate) fn set(&self, purpose: Purpose) {
        if let Some(entry) = self.roll.entries().connections.get_mut(&self.number) {
            entry.purpose = purpose;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.roll.entries().connections.remove(&self.number);
        self.roll.left.notify_waiters();
    }
}
