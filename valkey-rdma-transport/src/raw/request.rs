//! Registered memory, the work requests that use it, and their completions.

use std::ops::Range;

use valkey_rdma_proto::work::{self, Outcome, SendOp};

use super::QueuePair;
use crate::error::TransportError;

/// A work request for the send queue: for chains that go out with one doorbell, and for requests without a completion.
/// [`QueuePair`] has a method for each of the usual ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub(super) id: u64,
    pub(super) local: LocalSlice,
    pub(super) op: SendOp,
    pub(super) signalled: bool,
}

impl Request {
    /// SEND: a message into the peer's next posted receive.
    pub fn send(id: u64, local: impl Into<LocalSlice>) -> Self {
        Self { id, local: local.into(), op: SendOp::Send, signalled: true }
    }

    /// RDMA WRITE: bytes into the peer's memory, unnoticed by the peer's program.
    pub fn write(id: u64, local: impl Into<LocalSlice>, remote: RemoteRegion) -> Self {
        let RemoteRegion { addr, rkey, .. } = remote;
        Self { id, local: local.into(), op: SendOp::Write { addr, rkey }, signalled: true }
    }

    /// RDMA READ: bytes out of the peer's memory into `local`, unnoticed by the peer's program.
    pub fn read(id: u64, local: impl Into<LocalSlice>, remote: RemoteRegion) -> Self {
        let RemoteRegion { addr, rkey, .. } = remote;
        Self { id, local: local.into(), op: SendOp::Read { addr, rkey }, signalled: true }
    }

    /// Adds a number that the peer gets with the completion of a receive; a write uses up a receive for that. A read has none.
    #[must_use]
    pub fn with_imm(mut self, imm: u32) -> Self {
        self.op = match self.op {
            SendOp::Send | SendOp::SendWithImm { .. } => SendOp::SendWithImm { imm },
            SendOp::Write { addr, rkey } | SendOp::WriteWithImm { addr, rkey, .. } => {
                SendOp::WriteWithImm { addr, rkey, imm }
            }
            SendOp::Read { .. } => self.op,
        };
        self
    }

    /// Asks for no completion. The completion of a later request says that this one is done too; until then both hold a place
    /// in the send queue, so ask for one from time to time. A failure completes in any case.
    #[must_use]
    pub fn unsignalled(mut self) -> Self {
        self.signalled = false;
        self
    }
}

/// A work request that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The id that it was posted with.
    pub id: u64,
    /// What became of it.
    pub outcome: Outcome,
}

impl Completion {
    /// The bytes that arrived, if this is the completion of a receive.
    pub fn received_len(&self) -> Option<u32> {
        match self.outcome {
            Outcome::Received { len } | Outcome::ReceivedWithImm { len, .. } => Some(len),
            Outcome::Written { byte_len, .. } => Some(byte_len),
            Outcome::Sent | Outcome::Failed(_) => None,
        }
    }

    /// The number that the peer sent along.
    pub fn imm(&self) -> Option<u32> {
        match self.outcome {
            Outcome::ReceivedWithImm { imm, .. } | Outcome::Written { imm, .. } => Some(imm),
            Outcome::Received { .. } | Outcome::Sent | Outcome::Failed(_) => None,
        }
    }

    /// The completion of a request that succeeded.
    ///
    /// # Errors
    /// [`TransportError::WorkRequest`] if it failed.
    pub fn ok(self) -> Result<Self, TransportError> {
        match self.outcome {
            Outcome::Failed(status) => Err(TransportError::WorkRequest { id: self.id, status }),
            _ => Ok(self),
        }
    }
}

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
