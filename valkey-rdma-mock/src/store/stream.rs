//! Streams and their consumer groups.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

use valkey_rdma_resp::integer;

/// Place of an entry in a stream: milliseconds since 1970, and a number among those of one millisecond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId {
    pub(crate) ms: u64,
    pub(crate) seq: u64,
}

/// Field names and values of one entry, alternating.
pub(crate) type Fields = Vec<Bytes>;

/// Entries in the order of their ids.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stream {
    entries: BTreeMap<StreamId, Fields>,
    pub(crate) last_id: StreamId,
    pub(crate) max_deleted: StreamId,
    pub(crate) entries_added: u64,
    pub(crate) groups: BTreeMap<Bytes, Group>,
    changes: u64,
}

/// A consumer group: what was delivered to whom, and not yet acknowledged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    pub(crate) last_delivered: StreamId,
    pub(crate) entries_read: Option<u64>,
    pub(crate) pending: BTreeMap<StreamId, Pending>,
    pub(crate) consumers: BTreeMap<Bytes, Consumer>,
}

/// One consumer of a group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Consumer {
    /// Milliseconds since 1970 when it last read, and when it last received entries.
    pub(crate) seen: i64,
    pub(crate) active: Option<i64>,
}

/// A delivered entry that waits for `XACK`.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) consumer: Bytes,
    pub(crate) delivered: i64,
    pub(crate) times: u64,
}

impl StreamId {
    pub(crate) const MIN: Self = Self { ms: 0, seq: 0 };
    pub(crate) const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// Reads `ms-seq`, or `ms` alone with `seq` as its second part.
    pub(crate) fn parse(text: &[u8], seq: u64) -> Option<Self> {
        match text.iter().position(|byte| *byte == b'-') {
            Some(at) => Some(Self { ms: number(&text[..at])?, seq: number(&text[at + 1..])? }),
            None => Some(Self { ms: number(text)?, seq }),
        }
    }

    pub(crate) fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    pub(crate) fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }
}

/// An unsigned number, as Valkey reads it.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
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
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, id: StreamId) -> Option<&Fields> {
        self.entries.get(&id)
    }

    /// Entries from `start` to `end`, both included.
    pub(crate) fn range(
        &self,
        start: StreamId,
        end: StreamId,
    ) -> impl DoubleEndedIterator<Item = (StreamId, &Fields)> {
        let range = (start <= end).then(|| self.entries.range(start..=end));
        range.into_iter().flatten().map(|(id, fields)| (*id, fields))
    }

    /// Appends an entry whose id is above all before.
    pub(crate) fn append(&mut self, id: StreamId, fields: Fields) {
        self.changes += 1;
        self.entries.insert(id, fields);
        self.last_id = id;
        self.entries_added += 1;
    }

    pub(crate) fn remove(&mut self, id: StreamId) -> bool {
        if self.entries.remove(&id).is_none() {
            return false;
        }
        self.changes += 1;
        self.max_deleted = self.max_deleted.max(id);
        true
    }

    /// Removes the oldest entry.
    pub(crate) fn remove_first(&mut self) -> bool {
        // As in Valkey, trimming does not change `max_deleted`.
        if self.entries.pop_first().is_none() {
            return false;
        }
        self.changes += 1;
        true
    }

    /// Marks the stream as changed, for changes of groups and ids.
    pub(crate) fn touch(&mut self) {
        self.changes += 1;
    }
}
