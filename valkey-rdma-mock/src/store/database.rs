//! Keys, their values, and when they expire.

use std::collections::BTreeSet;

use bytes::Bytes;
use crc32c::crc32c;
use foldhash::fast::RandomState;
use indexmap::IndexMap;

use super::{Kind, Value, keep};
use crate::failure::Failure;

/// One numbered database.
#[derive(Default)]
pub(crate) struct Database {
    entries: IndexMap<Bytes, Entry, RandomState>,
    /// The deadlines of all keys that have one, earliest first. Always in step with `entries`.
    deadlines: BTreeSet<(i64, Bytes)>,
    /// Keys that changed since the last `take_changed`.
    changed: Vec<Bytes>,
    /// Milliseconds since 1970.
    now: i64,
}

struct Entry {
    value: Value,
    deadline: Option<i64>,
    /// That of a string, once it was asked for.
    checksum: Option<u32>,
}

/// When a key expires. Times are milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    Never,
    /// As before, or never if the key is new.
    Keep,
    At(i64),
}

impl Database {
    /// Sets the clock and removes expired keys. Called before each command, so that no command has to check for expired keys.
    #[inline]
    pub(crate) fn set_now(&mut self, now: i64) {
        self.now = now;
        if !self.deadlines.is_empty() {
            self.remove_expired();
        }
    }

    fn remove_expired(&mut self) {
        while self.deadlines.first().is_some_and(|(deadline, _)| *deadline <= self.now) {
            let Some((_, key)) = self.deadlines.pop_first() else { break };
            self.remove(&key);
        }
    }

    /// Milliseconds since 1970. Constant while a command runs.
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

    /// A string with its CRC-32C. Before that is computed, once, the string moves to where `place` puts it.
    ///
    /// # Errors
    ///
    /// [`Failure::WRONG_TYPE`] if it is of another type.
    pub(crate) fn blob(
        &mut self,
        key: &[u8],
        place: impl FnOnce(&Bytes) -> Bytes,
    ) -> Result<Option<(Bytes, u32)>, Failure> {
        let Some(entry) = self.entries.get_mut(key) else { return Ok(None) };
        let value = Bytes::of_mut(&mut entry.value).ok_or(Failure::WRONG_TYPE)?;
        let checksum = *entry.checksum.get_or_insert_with(|| {
            *value = place(value);
            crc32c(value)
        });
        Ok(Some((value.clone(), checksum)))
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.entries.contains_key(key)
    }

    /// Stores `value` and replaces any old value, whatever its type.
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
        // The key keeps its place, so that a SCAN in progress still finds it.
        let key = match self.entries.get_full_mut(key) {
            Some((_, key, entry)) => {
                (entry.value, entry.checksum) = (value, None);
                entry.deadline = deadline;
                key.clone()
            }
            None => {
                let key = keep(key);
                self.entries.insert(key.clone(), Entry { value, deadline, checksum: None });
                key
            }
        };
        self.schedule(&key, old, deadline);
        self.changed.push(key);
    }

    /// Changes the value of an existing key. `None`: there is no such key.
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
        entry.checksum = None;
        let before = entry.value.changes();
        let result = change(T::of_mut(&mut entry.value).ok_or(Failure::WRONG_TYPE)?);
        let after = entry.value.changes();
        let void = entry.value.is_void();
        if before != after
            && let Some((key, _)) = self.entries.get_index(index)
        {
            let key = key.clone();
            if void {
                self.remove(&key);
            } else {
                self.changed.push(key);
            }
        }
        Ok(Some(result))
    }

    /// Like [`edit`](Self::edit), but creates an empty value first if the key does not exist. A value that stays empty is not
    /// stored.
    ///
    /// # Errors
    ///
    /// Same errors as [`edit`](Self::edit).
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

    /// Removes a key and returns its value and deadline.
    pub(crate) fn take(&mut self, key: &[u8]) -> Option<(Value, Option<i64>)> {
        let (key, entry) = self.entries.swap_remove_entry(key)?;
        self.schedule(&key, entry.deadline, None);
        self.changed.push(key);
        Some((entry.value, entry.deadline))
    }

    /// `None`: no such key. `Some(None)`: the key does not expire.
    pub(crate) fn deadline(&self, key: &[u8]) -> Option<Option<i64>> {
        self.entries.get(key).map(|entry| entry.deadline)
    }

    /// Sets or removes the deadline of an existing key. A deadline in the past removes the key.
    pub(crate) fn expire(&mut self, key: &[u8], deadline: Option<i64>) {
        if deadline.is_some_and(|deadline| deadline <= self.now) {
            self.remove(key);
            return;
        }
        let Some((_, key, entry)) = self.entries.get_full_mut(key) else { return };
        let old = std::mem::replace(&mut entry.deadline, deadline);
        let key = key.clone();
        self.schedule(&key, old, deadline);
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
        self.deadlines.len()
    }

    /// All keys, in no particular order. Removing a key moves the last key into its place.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Bytes, &Value)> + ExactSizeIterator {
        self.entries.iter().map(|(key, entry)| (key, &entry.value))
    }

    /// The key at `index` in the order of [`iter`](Self::iter).
    pub(crate) fn at(&self, index: usize) -> Option<(&Bytes, &Value)> {
        self.entries.get_index(index).map(|(key, entry)| (key, &entry.value))
    }

    /// Returns the keys that changed since the last call, with duplicates.
    pub(crate) fn take_changed(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.changed)
    }

    /// Forgets which keys changed.
    #[inline]
    pub(crate) fn forget_changed(&mut self) {
        if !self.changed.is_empty() {
            self.changed.clear();
            self.changed.shrink_to(64);
        }
    }

    /// Marks a key as changed.
    pub(crate) fn touch(&mut self, key: &Bytes) {
        if let Some((key, _)) = self.entries.get_key_value(key) {
            self.changed.push(key.clone());
        }
    }

    /// True if keys changed since the last [`take_changed`](Self::take_changed).
    pub(crate) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Moves a key within `deadlines`.
    fn schedule(&mut self, key: &Bytes, old: Option<i64>, new: Option<i64>) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.deadlines.remove(&(old, key.clone()));
        }
        if let Some(new) = new {
            self.deadlines.insert((new, key.clone()));
        }
    }
}
