//! Keys, values and when they go.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use tokio::time::Instant;

/// One numbered database. Keys and values must own their memory: see [`Command::keep`](crate::Command::keep).
#[derive(Default)]
pub(super) struct Database {
    entries: HashMap<Bytes, Entry>,
    /// Every deadline in `entries`, earliest first. Always in step with it.
    deadlines: BTreeSet<(Instant, Bytes)>,
}

struct Entry {
    value: Bytes,
    deadline: Option<Instant>,
}

/// When a key goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expiry {
    Never,
    /// What it was before, or never if the key is new.
    Keep,
    At(Instant),
}

impl Database {
    /// Removes what has expired. Called before each command, so that nothing else needs to think of it.
    pub(super) fn forget_expired(&mut self) {
        if self.deadlines.is_empty() {
            return;
        }
        let now = Instant::now();
        while self.deadlines.first().is_some_and(|(deadline, _)| *deadline <= now) {
            if let Some((_, key)) = self.deadlines.pop_first() {
                self.entries.remove(&key);
            }
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.entries.contains_key(key)
    }

    /// Stores `value` and returns the one before.
    pub(super) fn set(&mut self, key: Bytes, value: Bytes, expiry: Expiry) -> Option<Bytes> {
        let old = self.remove_entry(&key);
        let deadline = match expiry {
            Expiry::Never => None,
            Expiry::Keep => old.as_ref().and_then(|entry| entry.deadline),
            Expiry::At(deadline) => Some(deadline),
        };
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, key.clone()));
        }
        self.entries.insert(key, Entry { value, deadline });
        old.map(|entry| entry.value)
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Bytes> {
        self.remove_entry(key).map(|entry| entry.value)
    }

    /// `None`: no such key. `Some(None)`: it stays for ever.
    pub(super) fn deadline(&self, key: &[u8]) -> Option<Option<Instant>> {
        self.entries.get(key).map(|entry| entry.deadline)
    }

    /// Gives an existing key a new deadline.
    pub(super) fn expire_at(&mut self, key: &[u8], deadline: Instant) {
        if let Some((key, entry)) = self.entries.remove_entry(key) {
            self.forget_deadline(&key, &entry);
            self.set(key, entry.value, Expiry::At(deadline));
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many keys have a deadline.
    pub(super) fn expiring(&self) -> usize {
        self.deadlines.len()
    }

    fn remove_entry(&mut self, key: &[u8]) -> Option<Entry> {
        let (key, entry) = self.entries.remove_entry(key)?;
        self.forget_deadline(&key, &entry);
        Some(entry)
    }

    fn forget_deadline(&mut self, key: &Bytes, entry: &Entry) {
        if let Some(deadline) = entry.deadline {
            self.deadlines.remove(&(deadline, key.clone()));
        }
    }
}
