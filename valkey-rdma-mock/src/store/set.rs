//! Sets.

use bytes::Bytes;
use indexmap::IndexSet;

use super::keep;

/// Members in insertion order, which is the order Valkey shows for small sets of words.
#[derive(Debug, Clone, Default)]
pub(crate) struct Set {
    members: IndexSet<Bytes>,
    changes: u64,
}

impl Set {
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn contains(&self, member: &[u8]) -> bool {
        self.members.contains(member)
    }

    /// The member at `index` in the order of [`iter`](Self::iter).
    pub(crate) fn at(&self, index: usize) -> Option<&Bytes> {
        self.members.get_index(index)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Bytes> + ExactSizeIterator {
        self.members.iter()
    }

    /// Adds a member. `true`: it is new.
    pub(crate) fn insert(&mut self, member: &Bytes) -> bool {
        if self.members.contains(member) {
            return false;
        }
        self.changes += 1;
        self.members.insert(keep(member))
    }

    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        let at = self.members.get_index_of(member);
        at.is_some_and(|at| self.take_at(at).is_some())
    }

    /// Removes the member at `index`.
    pub(crate) fn take_at(&mut self, index: usize) -> Option<Bytes> {
        let member = if self.members.len() <= ORDERED {
            self.members.shift_remove_index(index)
        } else {
            self.members.swap_remove_index(index)
        }?;
        self.changes += 1;
        Some(member)
    }
}

/// Largest set whose order is kept.
const ORDERED: usize = 512;
