//! Hashes.

use bytes::Bytes;
use indexmap::IndexMap;

use super::keep;

/// Fields and their values in insertion order, which is the order Valkey shows for small hashes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hash {
    fields: IndexMap<Bytes, Bytes>,
    changes: u64,
}

impl Hash {
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    pub(crate) fn get(&self, field: &[u8]) -> Option<&Bytes> {
        self.fields.get(field)
    }

    /// The field at `index` in the order of [`iter`](Self::iter).
    pub(crate) fn at(&self, index: usize) -> Option<(&Bytes, &Bytes)> {
        self.fields.get_index(index)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Bytes, &Bytes)> + ExactSizeIterator {
        self.fields.iter()
    }

    /// Sets a field. `true`: the field is new.
    pub(crate) fn set(&mut self, field: &Bytes, value: Bytes) -> bool {
        self.changes += 1;
        if let Some(old) = self.fields.get_mut(field) {
            *old = value;
            return false;
        }
        self.fields.insert(keep(field), value);
        true
    }

    pub(crate) fn remove(&mut self, field: &[u8]) -> Option<Bytes> {
        // Clients see the order of a small hash. A large one has no order in Valkey.
        let value = if self.fields.len() <= ORDERED {
            self.fields.shift_remove(field)
        } else {
            self.fields.swap_remove(field)
        }?;
        self.changes += 1;
        Some(value)
    }
}

/// Largest hash whose order Valkey keeps (`hash-max-listpack-entries`).
const ORDERED: usize = 512;
