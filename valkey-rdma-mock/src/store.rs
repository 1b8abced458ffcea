//! What the mock keeps: databases of keys, and a value of some type for each.
//!
//! Every type counts its own changes. [`Database::edit`] compares the counts to find out whether a key changed, and removes
//! values that have become empty.

mod database;
mod hash;
mod list;
mod set;
mod sorted_set;
mod stream;
mod value;

pub(super) use database::{Database, Expiry};
pub(super) use hash::Hash;
pub(super) use list::{End, List};
pub(super) use set::Set;
pub(super) use sorted_set::{Bound, SortedSet};
pub(super) use stream::{Group, Pending, Stream, StreamId, number};
pub(super) use value::{Kind, Value};

use bytes::Bytes;

use valkey_rdma_server::Command;

/// A stored copy of an argument, that pins nothing but itself: see [`Command::keep`].
pub(super) fn keep(arg: &Bytes) -> Bytes {
    if arg.len() >= Command::LARGE { arg.clone() } else { Bytes::copy_from_slice(arg) }
}

/// The number of databases: Valkey's default.
pub(super) const DATABASES: usize = 16;
