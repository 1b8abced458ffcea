//! A value of one of the types.

use bytes::Bytes;

use super::{Hash, List, Set, SortedSet, Stream};
use valkey_rdma_resp::integer;

/// What a key holds.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    String(Bytes),
    List(List),
    Hash(Hash),
    Set(Set),
    SortedSet(SortedSet),
    Stream(Stream),
}

/// One type of value.
pub(crate) trait Kind: Default {
    /// The value as this type, if it is of it.
    fn of(value: &Value) -> Option<&Self>;

    fn of_mut(value: &mut Value) -> Option<&mut Self>;

    fn into_value(self) -> Value;
}

/// What a collection counts of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Bytes of what is in it, with what keeping them costs.
    pub(crate) bytes: usize,
    /// How often it was changed.
    pub(crate) changes: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, len: usize) {
        self.bytes += len + ITEM;
        self.changes += 1;
    }

    pub(crate) fn remove(&mut self, len: usize) {
        self.bytes -= len + ITEM;
        self.changes += 1;
    }

    pub(crate) fn change(&mut self) {
        self.changes += 1;
    }
}

/// What keeping one item costs beside its bytes, roughly.
const ITEM: usize = 64;

impl Value {
    /// Bytes and changes. A string is replaced as a whole and counts none.
    pub(super) fn tally(&self) -> Tally {
        match self {
            Self::String(bytes) => Tally { bytes: bytes.len(), changes: 0 },
            Self::List(list) => list.tally(),
            Self::Hash(hash) => hash.tally(),
            Self::Set(set) => set.tally(),
            Self::SortedSet(set) => set.tally(),
            Self::Stream(stream) => stream.tally(),
        }
    }

    /// Whether a key may not hold it: all collections but streams vanish with their last item.
    pub(super) fn is_void(&self) -> bool {
        match self {
            Self::String(_) | Self::Stream(_) => false,
            Self::List(list) => list.len() == 0,
            Self::Hash(hash) => hash.len() == 0,
            Self::Set(set) => set.len() == 0,
            Self::SortedSet(set) => set.len() == 0,
        }
    }

    /// What `TYPE` says.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::String(_) => "string",
            Self::List(_) => "list",
            Self::Hash(_) => "hash",
            Self::Set(_) => "set",
            Self::SortedSet(_) => "zset",
            Self::Stream(_) => "stream",
        }
    }

    /// What `OBJECT ENCODING` says of a value that was stored at once: how Valkey would keep it, with its default settings.
    pub(crate) fn encoding(&self) -> &'static str {
        match self {
            Self::String(bytes) if bytes.len() <= 20 && integer::parse(bytes).is_some() => "int",
            Self::String(bytes) if bytes.len() <= EMBEDDED => "embstr",
            Self::String(_) => "raw",
            // A node of 8 KiB; each item takes a few bytes more than itself.
            Self::List(list) if list.listpack_len() <= 8192 => "listpack",
            Self::List(_) => "quicklist",
            Self::Hash(hash) if hash.len() <= 512 && hash.longest() <= 64 => "listpack",
            Self::Hash(_) => "hashtable",
            Self::Set(set) if set.is_integers() && set.len() <= 512 => "intset",
            Self::Set(set) if set.len() <= 128 && set.longest() <= 64 => "listpack",
            Self::Set(_) => "hashtable",
            Self::SortedSet(set) if set.len() <= 128 && set.longest() <= 64 => "listpack",
            Self::SortedSet(_) => "skiplist",
            Self::Stream(_) => "stream",
        }
    }
}

/// Longest string that Valkey keeps in one piece with its object and its key, if the key is short.
const EMBEDDED: usize = 110;

impl Kind for Bytes {
    fn of(value: &Value) -> Option<&Self> {
        if let Value::String(bytes) = value { Some(bytes) } else { None }
    }

    fn of_mut(value: &mut Value) -> Option<&mut Self> {
        if let Value::String(bytes) = value { Some(bytes) } else { None }
    }

    fn into_value(self) -> Value {
        Value::String(self)
    }
}

/// [`Kind`] for a collection of its own variant.
macro_rules! kind {
    ($type:ident) => {
        impl Kind for $type {
            fn of(value: &Value) -> Option<&Self> {
                if let Value::$type(inner) = value { Some(inner) } else { None }
            }

            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                if let Value::$type(inner) = value { Some(inner) } else { None }
            }

            fn into_value(self) -> Value {
                Value::$type(self)
            }
        }
    };
}

kind!(List);
kind!(Hash);
kind!(Set);
kind!(SortedSet);
kind!(Stream);
