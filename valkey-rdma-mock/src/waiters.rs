//! Blocked commands: they wait until a key has something for them.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::store::{Database, Value};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

/// Runs the command. `None`: its keys have no item yet.
pub(super) type Attempt = fn(&mut Database, &Command) -> Result<Option<Reply>, Failure>;

/// What a key must have become before a command that waits for it is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    List,
    SortedSet,
    Stream,
    /// Any change, also that it is gone: `XREADGROUP` then fails without its group.
    Changed,
}

impl Awaited {
    /// True if a key that has changed, and has this value now, is ready.
    pub(super) fn is(self, value: Option<&Value>) -> bool {
        matches!(
            (self, value),
            (Self::List, Some(Value::List(_)))
                | (Self::SortedSet, Some(Value::SortedSet(_)))
                | (Self::Stream, Some(Value::Stream(_)))
                | (Self::Changed, _)
        )
    }
}

/// A blocked command.
pub(super) struct Waiter {
    pub(super) command: Command,
    pub(super) awaited: Awaited,
    pub(super) attempt: Attempt,
    pub(super) keys: Vec<(usize, Bytes)>,
    pub(super) database: usize,
    /// The reply after a timeout.
    pub(super) on_timeout: Reply,
    pub(super) answer: oneshot::Sender<Reply>,
}

/// Blocked commands by client. Each key serves the longest wait first.
#[derive(Default)]
pub(super) struct Waiters {
    waiters: BTreeMap<u64, Waiter>,
    queues: HashMap<(usize, Bytes), VecDeque<u64>>,
}

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn add(&mut self, client: u64, waiter: Waiter) {
        for key in &waiter.keys {
            let queue = self.queues.entry(key.clone()).or_default();
            if !queue.contains(&client) {
                queue.push_back(client);
            }
        }
        self.waiters.insert(client, waiter);
    }

    pub(super) fn remove(&mut self, client: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&client)?;
        for key in &waiter.keys {
            if let Some(queue) = self.queues.get_mut(key) {
                queue.retain(|other| *other != client);
                if queue.is_empty() {
                    self.queues.remove(key);
                }
            }
        }
        Some(waiter)
    }

    /// The clients that wait for a key, the longest wait first.
    pub(super) fn queue(&self, key: &(usize, Bytes)) -> Vec<u64> {
        self.queues.get(key).map(|queue| queue.iter().copied().collect()).unwrap_or_default()
    }

    /// One key of each client that waits.
    pub(super) fn keys(&self) -> Vec<(u64, Bytes)> {
        let first = |waiter: &Waiter| waiter.keys.first().map(|(_, key)| key.clone());
        self.waiters.iter().filter_map(|(client, waiter)| Some((*client, first(waiter)?))).collect()
    }

    pub(super) fn get(&self, client: u64) -> Option<&Waiter> {
        self.waiters.get(&client)
    }
}
