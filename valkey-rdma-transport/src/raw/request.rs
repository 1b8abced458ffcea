//! Work requests of the send queue, and completions.

use valkey_rdma_proto::work::{Outcome, SendOp};

use super::{LocalSlice, RemoteRegion};
use crate::error::TransportError;

/// A work request for the send queue: for chains that go out with one doorbell, and for requests without a completion.
/// [`QueuePair`](super::QueuePair) has a method for each of the usual ones.
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
