//! [`Transfer`]: what `BLOB.GET` and `BLOB.SET` do with memory of their client, while no lock is held.

use bytes::Bytes;
use valkey_rdma_server::{DirectSlice, RemoteRanges};

/// A direct transfer that a command asks for.
pub(crate) enum Transfer {
    /// Writes a value to the client. The reply is its length and its checksum.
    Write { to: RemoteRanges, value: Bytes, checksum: u32 },
    /// Reads a value of `len` bytes from the client into `place`, and stores it. Without a place it is copied.
    Read { from: RemoteRanges, len: usize, place: Option<DirectSlice>, key: Bytes, database: usize },
}
