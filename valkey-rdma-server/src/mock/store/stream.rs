//! Streams and their consumer groups.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

use super::Tally;
use crate::integer;

/// Place of an entry in a stream: milliseconds since 1970, and a number among those of one millisecond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct StreamId {
    pub(in super::super) ms: u64,
    pub(in super::super) seq: u64,
}

/// Names and values of one entry, in turn.
pub(in super::super) type Fields = Vec<Bytes>;

/// Entries in the order of their ids.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Stream {
    entries: BTreeMap<StreamId, Fields>,
    pub(in super::super) last_id: StreamId,
    pub(in super::super) max_deleted: StreamId,
    pub(in super::super) entries_added: u64,
    pub(in super::super) groups: BTreeMap<Bytes, Group>,
    tally: Tally,
}

/// A consumer group: what was delivered to whom, and not yet acknowledged.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Group {
    pub(in super::super) last_delivered: StreamId,
    pub(in super::super) entries_read: Option<u64>,
    pub(in super::super) pending: BTreeMap<StreamId, Pending>,
    pub(in super::super) consumers: BTreeMap<Bytes, Consumer>,
}

/// One consumer of a group.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Consumer {
    /// Milliseconds since 1970 when it last asked, and last got something.
    pub(in super::super) seen: i64,
    pub(in super::super) active: Option<i64>,
}

/// A delivered entry that waits for `XACK`.
#[derive(Debug, Clone)]
pub(in super::super) struct Pending {
    pub(in super::super) consumer: Bytes,
    pub(in super::super) delivered: i64,
    pub(in super::super) times: u64,
}

impl StreamId {
    pub(in super::super) const MIN: Self = Self { ms: 0, seq: 0 };
    pub(in super::super) const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// Reads `ms-seq`, or `ms` alone with `seq` as its second part.
    pub(in super::super) fn parse(text: &[u8], seq: u64) -> Option<Self> {
        match text.iter().position(|byte| *byte == b'-') {
            Some(at) => Some(Self { ms: number(&text[..at])?, seq: number(&text[at + 1..])? }),
            None => Some(Self { ms: number(text)?, seq }),
        }
    }

    pub(in super::super) fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    pub(in super::super) fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }
}

/// An unsigned number, as Valkey reads it.
pub(in super::super) fn number(text: &[u8]) -> Option<u64> {
    match integer::parse(text) {
        Some(number) => u64::try_from(number).ok(),
        // The upper half of the range.
        None if text.first().is_some_and(|byte| (b'1'..=b'9').contains(byte)) => {
            text.iter().all(u8::is_ascii_digit).then(|| str::from_utf8(text).ok()?.parse().ok())?
        }
        None => None,
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

impl Stream {
    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    pub(in super::super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(in super::super) fn get(&self, id: StreamId) -> Option<&Fields> {
        self.entries.get(&id)
    }

    /// Entries from `start` to `end`, both included.
    pub(in super::super) fn range(
        &self,
        start: StreamId,
        end: StreamId,
    ) -> impl DoubleEndedIterator<Item = (StreamId, &Fields)> {
        let range = (start <= end).then(|| self.entries.range(start..=end));
        range.into_iter().flatten().map(|(id, fields)| (*id, fields))
    }

    pub(in super::super) fn first_id(&self) -> Option<StreamId> {
        self.entries.first_key_value().map(|(id, _)| *id)
    }

    /// Appends an entry whose id is above all before.
    pub(in super::super) fn append(&mut self, id: StreamId, fields: Fields) {
        self.tally.add(weight(&fields));
        self.entries.insert(id, fields);
        self.last_id = id;
        self.entries_added += 1;
    }

    pub(in super::super) fn remove(&mut self, id: StreamId) -> bool {
        let Some(fields) = self.entries.remove(&id) else { return false };
        self.tally.remove(weight(&fields));
        self.max_deleted = self.max_deleted.max(id);
        true
    }

    /// Removes the oldest entry.
    pub(in super::super) fn remove_first(&mut self) -> bool {
        // Trimming is not deleting: it leaves no tombstone.
        let Some((_, fields)) = self.entries.pop_first() else { return false };
        self.tally.remove(weight(&fields));
        true
    }

    /// Says that something beside the entries has changed: groups, ids.
    pub(in super::super) fn touch(&mut self) {
        self.tally.change();
    }
}

fn weight(fields: &Fields) -> usize {
    fields.iter().map(|field| field.len() + size_of::<Bytes>()).sum()
}
