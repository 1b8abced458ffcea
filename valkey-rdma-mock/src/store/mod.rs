//! What the mock keeps: databases of keys, and a value of some type for each.
//!
//! Every type counts its own bytes and changes ([`Tally`]), so that [`Database::edit`] can keep the books for all of them: the
//! memory limit, removal of what became empty, and who is to hear that a key changed.

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
pub(super) use sorted_set::{Bound, LexBound, SortedSet};
pub(super) use stream::{Consumer, Group, Pending, Stream, StreamId, number};
pub(super) use value::{Kind, Tally, Value};

use bytes::Bytes;

use valkey_rdma_server::Command;

/// A stored copy of an argument, that pins nothing but itself: see [`Command::keep`].
pub(super) fn keep(arg: &Bytes) -> Bytes {
    if arg.len() >= Command::LARGE { arg.clone() } else { Bytes::copy_from_slice(arg) }
}
