//! Registered memory: of this side, by name; of the peer, by address and key.

use std::ops::Range;

use valkey_rdma_proto::work;

use super::QueuePair;

/// Memory registered with one [`QueuePair`], by its name: the bytes are the queue pair's. It is freed with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub(super) owner: u64,
    pub(super) region: work::Region,
}

impl Region {
    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty one is of no use, and the same as any other")]
    pub fn len(&self) -> u32 {
        self.region.len
    }

    /// Bytes of the region.
    ///
    /// # Panics
    /// If the range is outside of the region, as slicing does.
    pub fn slice(&self, range: Range<u32>) -> LocalSlice {
        let Range { start, end } = range;
        assert!(
            start <= end && end <= self.len(),
            "{range:?} is outside of a region of {} bytes",
            self.len()
        );
        let slice = work::Slice { region: self.region.id, offset: start, len: end - start };
        LocalSlice { owner: self.owner, slice }
    }

    /// Address and key, for the peer. What the peer may do with them is the [`Access`](super::Access) of the registration.
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion { addr: self.region.addr, rkey: self.region.rkey, len: self.region.len }
    }
}

/// Some of the bytes of a [`Region`], for a work request. A region is one too: all of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalSlice {
    owner: u64,
    slice: work::Slice,
}

impl LocalSlice {
    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty one is a request without bytes, as any other")]
    pub fn len(&self) -> u32 {
        self.slice.len
    }

    /// The slice, for the queue pair that it belongs to.
    pub(super) fn of(self, queue_pair: &QueuePair) -> work::Slice {
        assert!(self.owner == queue_pair.number(), "the region belongs to another queue pair");
        self.slice
    }
}

impl From<Region> for LocalSlice {
    fn from(region: Region) -> Self {
        region.slice(0..region.len())
    }
}

/// Memory of the peer: its address and key, which the peer's program sends, in a message for example.
///
/// A program that has these two may do to the memory what it was registered for, over the queue pair that it belongs to and no
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRegion {
    /// The address of the first byte, as the peer's device knows it.
    pub addr: u64,
    /// The key of the registration.
    pub rkey: u32,
    /// Length in bytes.
    pub len: u32,
}

impl RemoteRegion {
    /// Length of [`to_bytes`](Self::to_bytes).
    pub const BYTES: usize = 16;

    /// The memory from `offset` on. Nothing is checked: the peer's device refuses what is outside.
    #[must_use]
    pub fn from_offset(self, offset: u32) -> Self {
        Self { addr: self.addr.wrapping_add(offset.into()), len: self.len.saturating_sub(offset), ..self }
    }

    /// As bytes, for a message: address, key, length, each big-endian.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[12..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// From the bytes of a message. `None`: they are too few; more are not looked at.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (addr, rest) = bytes.split_first_chunk()?;
        let (rkey, rest) = rest.split_first_chunk()?;
        let (len, _) = rest.split_first_chunk()?;
        let (addr, rkey, len) =
            (u64::from_be_bytes(*addr), u32::from_be_bytes(*rkey), u32::from_be_bytes(*len));
        Some(Self { addr, rkey, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_and_key_survive_the_way_to_bytes_and_back() {
        let region = RemoteRegion { addr: 0x0102_0304_0506_0708, rkey: 9, len: 10 };
        assert_eq!(RemoteRegion::from_bytes(&region.to_bytes()), Some(region));
        assert_eq!(RemoteRegion::from_bytes(&region.to_bytes()[..15]), None);
    }
}
