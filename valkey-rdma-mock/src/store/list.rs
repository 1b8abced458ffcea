//! Lists.

use std::collections::VecDeque;
use std::collections::vec_deque::Iter;

use bytes::Bytes;

/// One end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The head.
    Left,
    /// The tail.
    Right,
}

/// Items in order, cheap to add and remove at both ends.
#[derive(Debug, Clone, Default)]
pub(crate) struct List {
    items: VecDeque<Bytes>,
    changes: u64,
}

impl List {
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn range(&self, range: std::ops::Range<usize>) -> Iter<'_, Bytes> {
        self.items.range(range)
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Bytes> {
        self.items.get(index)
    }

    pub(crate) fn push(&mut self, end: End, item: Bytes) {
        self.changes += 1;
        match end {
            End::Left => self.items.push_front(item),
            End::Right => self.items.push_back(item),
        }
    }

    pub(crate) fn pop(&mut self, end: End) -> Option<Bytes> {
        let item = match end {
            End::Left => self.items.pop_front(),
            End::Right => self.items.pop_back(),
        }?;
        self.changes += 1;
        Some(item)
    }

    /// Replaces the item at `index`. `false`: no such item.
    pub(crate) fn set(&mut self, index: usize, item: Bytes) -> bool {
        let Some(old) = self.items.get_mut(index) else { return false };
        self.changes += 1;
        *old = item;
        true
    }

    /// Keeps the items of `range` only.
    pub(crate) fn trim(&mut self, range: std::ops::Range<usize>) {
        self.changes += u64::from(range.len() < self.items.len());
        self.items.truncate(range.end);
        self.items.drain(..range.start);
    }

    /// Removes at most `limit` items equal to `item`, searching from `end`, and returns how many.
    pub(crate) fn remove(&mut self, item: &[u8], limit: usize, end: End) -> usize {
        let mut found: Vec<usize> = Vec::new();
        let matching = |(index, candidate): (usize, &Bytes)| (candidate == item).then_some(index);
        match end {
            End::Left => found.extend(self.items.iter().enumerate().filter_map(matching).take(limit)),
            End::Right => found.extend(self.items.iter().enumerate().rev().filter_map(matching).take(limit)),
        }
        found.sort_unstable();
        let mut index = 0;
        self.items.retain(|_| {
            index += 1;
            found.binary_search(&(index - 1)).is_err()
        });
        self.changes += found.len() as u64;
        found.len()
    }
}
