//! Sets.

use std::collections::BTreeSet;

use bytes::Bytes;
use indexmap::IndexSet;

use super::{Tally, keep};
use valkey_rdma_resp::integer;

/// Members in the order Valkey shows those of small sets: as they came, or by value while all are integers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Set {
    members: IndexSet<Bytes>,
    tally: Tally,
    /// Members that are not integers.
    words: usize,
    /// A set of integers forgets that order when it gets its first word.
    had_words: bool,
}

impl Set {
    pub(super) fn tally(&self) -> Tally {
        self.tally
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

    /// `true`: it is new.
    pub(crate) fn insert(&mut self, member: &Bytes) -> bool {
        if self.members.contains(member) {
            return false;
        }
        let number = integer::parse(member);
        self.tally.add(member.len());
        let orders = number.filter(|_| !self.had_words && self.members.len() < ORDERED);
        match orders {
            Some(number) => {
                let at = self
                    .members
                    .partition_point(|other| integer::parse(other).is_some_and(|other| other < number));
                self.members.shift_insert(at, keep(member));
            }
            None => {
                self.members.insert(keep(member));
            }
        }
        if number.is_none() {
            self.words += 1;
            self.had_words = true;
        }
        true
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
        self.tally.remove(member.len());
        if integer::parse(&member).is_none() {
            self.words -= 1;
        }
        Some(member)
    }

    pub(super) fn is_integers(&self) -> bool {
        !self.had_words
    }

    pub(super) fn longest(&self) -> usize {
        self.members.iter().map(Bytes::len).max().unwrap_or(0)
    }
}

impl FromIterator<Bytes> for Set {
    fn from_iter<I: IntoIterator<Item = Bytes>>(members: I) -> Self {
        let mut set = Self::default();
        for member in members.into_iter().collect::<BTreeSet<_>>() {
            set.insert(&member);
        }
        set
    }
}

/// Largest set whose order is kept (`set-max-intset-entries`).
const ORDERED: usize = 512;
