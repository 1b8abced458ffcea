//! Keys, values and when they go.

use std::collections::BTreeSet;

use bytes::Bytes;
use indexmap::IndexMap;

use super::{Hash, Kind, Value, keep};
use crate::failure::Failure;

/// One numbered database.
#[derive(Default)]
pub(crate) struct Database {
    entries: IndexMap<Bytes, Entry>,
    /// Every deadline in `entries`, those of hash fields too, earliest first. Always in step with it.
    deadlines: BTreeSet<(i64, Bytes)>,
    /// Keys with a deadline of their own.
    expiring: usize,
    /// Bytes of all keys and values, with what keeping them costs.
    used: usize,
    /// Keys that changed since somebody looked.
    changed: Vec<Bytes>,
    /// Milliseconds since 1970.
    now: i64,
}

struct Entry {
    value: Value,
    deadline: Option<i64>,
    /// What stands in [`Database::deadlines`]: the key's deadline or that of its first field.
    scheduled: Option<i64>,
}

/// When a key goes. Times are milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    Never,
    /// What it was before, or never if the key is new.
    Keep,
    At(i64),
}

impl Database {
    /// Moves the clock and removes what has expired. Called before each command, so that nothing else needs to think of it.
    pub(crate) fn set_now(&mut self, now: i64) {
        self.now = now;
        while self.deadlines.first().is_some_and(|(deadline, _)| *deadline <= now) {
            let Some((_, key)) = self.deadlines.pop_first() else { break };
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            entry.scheduled = None;
            if entry.deadline.is_some_and(|deadline| deadline <= now) {
                self.remove(&key);
            } else {
                // Its hash fields; this also schedules the next of them.
                let _ = self.edit(&key, |hash: &mut Hash| hash.forget_expired(now));
            }
        }
    }

    /// Milliseconds since 1970, the same during a whole command.
    pub(crate) fn now(&self) -> i64 {
        self.now
    }

    pub(crate) fn value(&self, key: &[u8]) -> Option<&Value> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// The value as type `T`.
    ///
    /// # Errors
    ///
    /// [`Failure::WRONG_TYPE`] if it is of another type.
    pub(crate) fn get<T: Kind>(&self, key: &[u8]) -> Result<Option<&T>, Failure> {
        self.value(key).map(|value| T::of(value).ok_or(Failure::WRONG_TYPE)).transpose()
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.entries.contains_key(key)
    }

    /// Stores `value`, whatever was there.
    pub(crate) fn set(&mut self, key: &Bytes, value: Value, expiry: Expiry) {
        if value.is_void() {
            self.take(key);
            return;
        }
        let old = self.deadline(key).flatten();
        let deadline = match expiry {
            Expiry::Never => None,
            Expiry::Keep => old,
            Expiry::At(deadline) => Some(deadline),
        };
        self.expiring += usize::from(deadline.is_some());
        self.expiring -= usize::from(old.is_some());
        // In its place, so that a scan under way finds it where it was.
        let key = match self.entries.get_full_mut(key) {
            Some((_, key, entry)) => {
                self.used = self.used - weight(key, &entry.value) + weight(key, &value);
                entry.value = value;
                entry.deadline = deadline;
                key.clone()
            }
            None => {
                let key = keep(key);
                self.used += weight(&key, &value);
                self.entries.insert(key.clone(), Entry { value, deadline, scheduled: None });
                key
            }
        };
        self.schedule(&key);
        self.changed.push(key);
    }

    /// Changes the value of an existing key. `None`: there is none.
    ///
    /// # Errors
    ///
    /// [`Failure::WRONG_TYPE`] if it is of another type.
    pub(crate) fn edit<T: Kind, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<Option<R>, Failure> {
        let Some((index, _, entry)) = self.entries.get_full_mut(key) else { return Ok(None) };
        let before = entry.value.tally();
        let result = change(T::of_mut(&mut entry.value).ok_or(Failure::WRONG_TYPE)?);
        let after = entry.value.tally();
        self.used = self.used - before.bytes + after.bytes;
        let void = entry.value.is_void();
        if before != after
            && let Some((key, _)) = self.entries.get_index(index)
        {
            let key = key.clone();
            if void {
                self.remove(&key);
            } else {
                self.schedule(&key);
                self.changed.push(key);
            }
        }
        Ok(Some(result))
    }

    /// As [`edit`](Self::edit), on an empty value if there is none. It is kept if it is not empty afterwards.
    ///
    /// # Errors
    ///
    /// As [`edit`](Self::edit).
    pub(crate) fn edit_or_create<T: Kind, R>(
        &mut self,
        key: &Bytes,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<R, Failure> {
        if !self.contains(key) {
            let mut value = T::default();
            let result = change(&mut value);
            self.set(key, value.into_value(), Expiry::Never);
            return Ok(result);
        }
        self.edit(key, change)?.ok_or(Failure::NO_SUCH_KEY)
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        self.take(key).is_some()
    }

    /// Takes a key out, with its deadline.
    pub(crate) fn take(&mut self, key: &[u8]) -> Option<(Value, Option<i64>)> {
        let (key, entry) = self.entries.swap_remove_entry(key)?;
        self.used -= weight(&key, &entry.value);
        self.expiring -= usize::from(entry.deadline.is_some());
        if let Some(scheduled) = entry.scheduled {
            self.deadlines.remove(&(scheduled, key.clone()));
        }
        self.changed.push(key);
        Some((entry.value, entry.deadline))
    }

    /// `None`: no such key. `Some(None)`: it stays for ever.
    pub(crate) fn deadline(&self, key: &[u8]) -> Option<Option<i64>> {
        self.entries.get(key).map(|entry| entry.deadline)
    }

    /// Gives an existing key a deadline, or takes it away. One that has passed removes the key.
    pub(crate) fn expire(&mut self, key: &[u8], deadline: Option<i64>) {
        if deadline.is_some_and(|deadline| deadline <= self.now) {
            self.remove(key);
            return;
        }
        let Some((_, key, entry)) = self.entries.get_full_mut(key) else { return };
        self.expiring -= usize::from(entry.deadline.is_some());
        self.expiring += usize::from(deadline.is_some());
        entry.deadline = deadline;
        let key = key.clone();
        self.schedule(&key);
        self.changed.push(key);
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        let changed = self.entries.keys().cloned().collect();
        *self = Self { changed, now: self.now, ..Self::default() };
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many keys have a deadline.
    pub(crate) fn expiring(&self) -> usize {
        self.expiring
    }

    /// Bytes of all keys and values, roughly.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Bytes a key and its value take, roughly.
    pub(crate) fn usage(&self, key: &[u8]) -> Option<usize> {
        let (key, entry) = self.entries.get_key_value(key)?;
        Some(weight(key, &entry.value))
    }

    /// All keys, in no order that means anything. Removing one moves the last one into its place.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Bytes, &Value)> + ExactSizeIterator {
        self.entries.iter().map(|(key, entry)| (key, &entry.value))
    }

    /// The key at `index` in the order of [`iter`](Self::iter).
    pub(crate) fn at(&self, index: usize) -> Option<(&Bytes, &Value)> {
        self.entries.get_index(index).map(|(key, entry)| (key, &entry.value))
    }

    /// The keys that changed since the last call, each as often as it did.
    pub(crate) fn take_changed(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.changed)
    }

    /// As [`take_changed`](Self::take_changed), where only their number is wanted.
    pub(crate) fn forget_changed(&mut self) -> usize {
        const KEPT: usize = 64;
        let count = self.changed.len();
        self.changed.clear();
        self.changed.shrink_to(KEPT);
        count
    }

    /// Says that a key counts as changed.
    pub(crate) fn touch(&mut self, key: &Bytes) {
        if let Some((key, _)) = self.entries.get_key_value(key) {
            self.changed.push(key.clone());
        }
    }

    /// The keys that changed since somebody looked, as from [`take_changed`](Self::take_changed), and all that are there.
    pub(crate) fn take_all_as_changed(&mut self) -> Vec<Bytes> {
        let mut keys = self.take_changed();
        keys.extend(self.entries.keys().cloned());
        keys
    }

    /// Says that these keys count as changed, whether they are there or not.
    pub(crate) fn report(&mut self, keys: Vec<Bytes>) {
        self.changed.extend(keys);
    }

    /// The keys that changed since somebody took them.
    pub(crate) fn changed(&self) -> &[Bytes] {
        &self.changed
    }

    /// Brings a key's place among the deadlines up to date.
    fn schedule(&mut self, key: &Bytes) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let fields = Hash::of(&entry.value).and_then(Hash::next_deadline);
        let next = entry.deadline.into_iter().chain(fields).min();
        if next == entry.scheduled {
            return;
        }
        if let Some(old) = std::mem::replace(&mut entry.scheduled, next) {
            self.deadlines.remove(&(old, key.clone()));
        }
        if let Some(next) = next {
            self.deadlines.insert((next, key.clone()));
        }
    }
}

fn weight(key: &Bytes, value: &Value) -> usize {
    const ENTRY: usize = 128;
    ENTRY + key.len() + value.tally().bytes
}
