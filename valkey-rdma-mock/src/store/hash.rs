//! Hashes.

use bytes::Bytes;
use indexmap::IndexMap;

use super::{Tally, keep};

/// Fields and their values, in the order they came, as Valkey keeps small hashes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hash {
    fields: IndexMap<Bytes, Field>,
    /// Deadlines in milliseconds since 1970, earliest first.
    deadlines: std::collections::BTreeSet<(i64, Bytes)>,
    tally: Tally,
}

#[derive(Debug, Clone)]
struct Field {
    value: Bytes,
    deadline: Option<i64>,
}

impl Hash {
    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    pub(crate) fn get(&self, field: &[u8]) -> Option<&Bytes> {
        self.fields.get(field).map(|field| &field.value)
    }

    /// The field at `index` in the order of [`iter`](Self::iter).
    pub(crate) fn at(&self, index: usize) -> Option<(&Bytes, &Bytes)> {
        self.fields.get_index(index).map(|(field, content)| (field, &content.value))
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Bytes, &Bytes)> + ExactSizeIterator {
        self.fields.iter().map(|(field, content)| (field, &content.value))
    }

    /// Sets a field, for ever. `true`: it is new.
    pub(crate) fn set(&mut self, field: &Bytes, value: Bytes) -> bool {
        self.tally.add(field.len() + value.len());
        if let Some(old) = self.fields.get_mut(field) {
            self.tally.remove(field.len() + old.value.len());
            if let Some(deadline) = old.deadline.take() {
                self.deadlines.remove(&(deadline, field.clone()));
            }
            old.value = value;
            return false;
        }
        self.fields.insert(keep(field), Field { value, deadline: None });
        true
    }

    pub(crate) fn remove(&mut self, field: &[u8]) -> Option<Bytes> {
        // The order is part of what a small hash shows; in a large one Valkey has none.
        let (field, content) = if self.fields.len() <= ORDERED {
            self.fields.shift_remove_entry(field)
        } else {
            self.fields.swap_remove_entry(field)
        }?;
        self.tally.remove(field.len() + content.value.len());
        if let Some(deadline) = content.deadline {
            self.deadlines.remove(&(deadline, field));
        }
        Some(content.value)
    }

    /// `None`: no such field. `Some(None)`: it stays for ever.
    pub(crate) fn deadline(&self, field: &[u8]) -> Option<Option<i64>> {
        self.fields.get(field).map(|field| field.deadline)
    }

    /// Gives an existing field a deadline, or takes it away.
    pub(crate) fn expire(&mut self, field: &Bytes, deadline: Option<i64>) {
        let Some(content) = self.fields.get_mut(field) else { return };
        if let Some(old) = std::mem::replace(&mut content.deadline, deadline) {
            self.deadlines.remove(&(old, field.clone()));
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, keep(field)));
        }
        self.tally.change();
    }

    /// The first deadline of all fields.
    pub(super) fn next_deadline(&self) -> Option<i64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Removes the fields whose time has come.
    pub(super) fn forget_expired(&mut self, now: i64) {
        while self.deadlines.first().is_some_and(|(deadline, _)| *deadline <= now) {
            if let Some((_, field)) = self.deadlines.pop_first() {
                self.remove(&field);
            }
        }
    }

    pub(super) fn longest(&self) -> usize {
        self.fields.iter().map(|(field, content)| field.len().max(content.value.len())).max().unwrap_or(0)
    }
}

/// Largest hash whose order Valkey keeps (`hash-max-listpack-entries`).
const ORDERED: usize = 512;
