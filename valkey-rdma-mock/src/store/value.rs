//! A value of one of the types.

use bytes::Bytes;

use super::{Hash, List, Set, SortedSet, Stream};

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

impl Value {
    /// How often this value has changed. A string is replaced as a whole and has no count.
    pub(super) fn changes(&self) -> u64 {
        match self {
            Self::String(_) => 0,
            Self::List(list) => list.changes(),
            Self::Hash(hash) => hash.changes(),
            Self::Set(set) => set.changes(),
            Self::SortedSet(set) => set.changes(),
            Self::Stream(stream) => stream.changes(),
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
}

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
