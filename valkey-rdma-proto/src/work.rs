//! The descriptors between the connection and a device: work requests to the device, completions back.
//!
//! They name regions, offsets and lengths; the bytes stay in memory that the transport owns. A device needs to know
//! nothing else of the protocol.

use core::fmt;

/// The id of a registered memory region of one connection. The transport chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId(pub u32);

/// A registered memory region: its id, and what a peer needs to write into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// The id in work requests of this side.
    pub id: RegionId,
    /// The address for the peer's writes, as the device knows it.
    pub addr: u64,
    /// The remote key for the peer's writes. Has no meaning for a region without remote access.
    pub rkey: u32,
    /// Length in bytes.
    pub len: u32,
}

/// A range of bytes in one region: `offset..offset + len`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The region.
    pub region: RegionId,
    /// First byte, counted from the region's start.
    pub offset: u32,
    /// Number of bytes.
    pub len: u32,
}

/// A work request for the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SendRequest {
    /// The completion carries the same id.
    pub wr_id: WrId,
    /// The bytes to send; for a read, where the peer's bytes go.
    pub local: Slice,
    /// The operation.
    pub op: SendOp,
    /// Whether success produces a completion. Failures always do.
    pub signalled: bool,
}

/// The operation of a [`SendRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendOp {
    /// A message into the peer's next posted receive.
    Send,
    /// The same, with a number in the peer's completion. The protocol sends none.
    SendWithImm {
        /// The number in the peer's completion, in host order; the device puts it on the wire big-endian.
        imm: u32,
    },
    /// Bytes into the peer's memory. The peer is not notified.
    Write {
        /// Address in the peer's memory.
        addr: u64,
        /// The peer's key for it.
        rkey: u32,
    },
    /// Bytes into the peer's memory, and a completion at the peer, which uses up one of its receives.
    WriteWithImm {
        /// Address in the peer's memory.
        addr: u64,
        /// The peer's key for it.
        rkey: u32,
        /// The number in the peer's completion, in host order; the device puts it on the wire big-endian.
        imm: u32,
    },
    /// Bytes out of the peer's memory. The peer is not notified. Only [transfers](crate::Transfer) read.
    Read {
        /// Address in the peer's memory.
        addr: u64,
        /// The peer's key for it.
        rkey: u32,
    },
}

impl SendOp {
    /// Returns whether this operation uses up one of the peer's posted receives.
    pub fn consumes_receive(&self) -> bool {
        !matches!(self, SendOp::Write { .. } | SendOp::Read { .. })
    }
}

/// A buffer posted for one incoming message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceiveRequest {
    /// The completion carries the same id.
    pub wr_id: WrId,
    /// The buffer for the message.
    pub local: Slice,
}

/// A device's report of one finished work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Completion {
    /// The id of the work request.
    pub wr_id: WrId,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A signalled send was acknowledged by the peer, and with it every send posted before it. Of a read, the bytes have
    /// arrived.
    Sent,
    /// A SEND of `len` bytes arrived in the receive's buffer.
    Received {
        /// Length of the message in bytes.
        len: u32,
    },
    /// The same, sent with an immediate, which the protocol ignores (spec clause M-3).
    ReceivedWithImm {
        /// Length of the message in bytes.
        len: u32,
        /// The immediate, in host order.
        imm: u32,
    },
    /// A WRITE_WITH_IMM arrived: the last write carried `byte_len` bytes, the immediate is `imm` (host order).
    /// The receive's buffer is untouched.
    Written {
        /// Bytes carried by this write alone.
        byte_len: u32,
        /// The immediate, in host order.
        imm: u32,
    },
    /// The request failed. The queue pair is in error: nothing more will be sent or received on it.
    Failed(FailureStatus),
}

/// Why a work request failed (`ibv_wc_status`, `ibv_poll_cq(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureStatus {
    /// The message is longer than the posted receive, or longer than the port can send.
    LocalLength,
    /// The queue pair does not allow the request.
    LocalQueuePair,
    /// The local buffer is not covered by its region or its access rights.
    LocalProtection,
    /// The queue pair failed before this request was executed.
    Flushed,
    /// The peer's device refused the request as invalid.
    RemoteInvalidRequest,
    /// The peer's key, bounds or access rights do not allow the access.
    RemoteAccess,
    /// The peer's device could not complete the request.
    RemoteOperation,
    /// The peer did not acknowledge, after all retries: the peer or the path to it has failed.
    RetryExceeded,
    /// The peer had no receive posted, after all retries.
    RnrRetryExceeded,
    /// Any other status, with the device's number.
    Other(u32),
}

impl fmt::Display for FailureStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LocalLength => f.write_str("local length error"),
            Self::LocalQueuePair => f.write_str("local queue pair operation error"),
            Self::LocalProtection => f.write_str("local protection error"),
            Self::Flushed => {
                f.write_str("flushed: the queue pair had failed or was disconnected before, and the device named no request as the cause")
            },
            Self::RemoteInvalidRequest => f.write_str("remote invalid request error"),
            Self::RemoteAccess => f.write_str("remote access error"),
            Self::RemoteOperation => f.write_str("remote operation error"),
            Self::RetryExceeded => f.write_str("transport retry counter exceeded (peer unreachable)"),
            Self::RnrRetryExceeded => {
                f.write_str("the peer had no free receive buffer (receiver-not-ready retries exceeded)")
            }
            Self::Other(status) => write!(f, "work completion status {status} (see ibv_poll_cq(3))"),
        }
    }
}

/// The id of a work request, chosen by the connection and returned unchanged by the device.
///
/// Shape: bit 63 is 1 for a receive and 0 for a send. A receive carries the number of its slot. A send carries its
/// sequence number within the connection, so that one signalled completion acknowledges every send with a smaller
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WrId(pub u64);

const RECEIVE_BIT: u64 = 1 << 63;

/// A decoded [`WrId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WrKind {
    /// A receive, with its slot.
    Receive(u32),
    /// A send, with its sequence number.
    Send(u64),
}

impl WrId {
    /// Returns the id of the receive in `slot`.
    pub fn receive(slot: u32) -> Self {
        Self(RECEIVE_BIT | u64::from(slot))
    }

    /// Returns the id of the send with number `sequence`.
    pub fn send(sequence: u64) -> Self {
        Self(sequence & !RECEIVE_BIT)
    }

    /// Decodes the id. Every value is valid, so a faulty device cannot cause a panic here.
    pub fn kind(self) -> WrKind {
        if self.0 & RECEIVE_BIT == 0 { WrKind::Send(self.0) } else { WrKind::Receive(self.0 as u32) }
    }
}
