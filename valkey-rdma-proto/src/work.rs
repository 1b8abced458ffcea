//! The descriptors that pass between the core and a device: work requests one way, completions the other.
//!
//! They name regions, offsets and lengths; the bytes stay in memory that the transport owns. A device needs
//! to know nothing else of the protocol.

use core::fmt;

/// Names one registered memory region of one connection. The transport hands the names out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId(pub u32);

/// A registered memory region: its name here, and what a peer needs to write into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Its name in work requests of this side.
    pub id: RegionId,
    /// The address a peer must name, as the device knows it.
    pub addr: u64,
    /// The remote key a peer must name. Meaningless for a region without remote access.
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
    /// Comes back in the completion.
    pub wr_id: WrId,
    /// The bytes to send.
    pub local: Slice,
    /// What to do with them.
    pub op: SendOp,
    /// Whether a completion is wanted when it succeeds. Failures always complete.
    pub signalled: bool,
}

/// The operation of a [`SendRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendOp {
    /// A message into the peer's next posted receive.
    Send,
    /// Bytes into the peer's memory; the peer is not told.
    Write {
        /// Address in the peer's memory.
        addr: u64,
        /// The peer's key for it.
        rkey: u32,
    },
    /// Bytes into the peer's memory, and a completion at the peer that uses up one of its receives.
    WriteWithImm {
        /// Address in the peer's memory.
        addr: u64,
        /// The peer's key for it.
        rkey: u32,
        /// The number told to the peer, in host order; the device puts it on the wire big-endian.
        imm: u32,
    },
}

impl SendOp {
    /// Whether this operation uses up one of the peer's posted receives.
    pub fn consumes_receive(&self) -> bool {
        !matches!(self, SendOp::Write { .. })
    }
}

/// A buffer posted for one incoming message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceiveRequest {
    /// Comes back in the completion.
    pub wr_id: WrId,
    /// Where the message is to be put.
    pub local: Slice,
}

/// What a device reports of one finished work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Completion {
    /// The identity given when it was posted.
    pub wr_id: WrId,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A signalled send was acknowledged by the peer, and with it every send posted before it.
    Sent,
    /// A SEND of `len` bytes arrived in the receive's buffer. An immediate sent with it is ignored
    /// (spec clause M-3).
    Received {
        /// Length of the message in bytes.
        len: u32,
    },
    /// A WRITE_WITH_IMM arrived: the last write carried `byte_len` bytes, the immediate is `imm` (host order).
    /// The receive's buffer is untouched.
    Written {
        /// Bytes carried by this write alone.
        byte_len: u32,
        /// The immediate, in host order.
        imm: u32,
    },
    /// It failed; the queue pair is in error and nothing more will be sent or received on it.
    Failed(FailureStatus),
}

/// Why a work request failed (`ibv_wc_status`, `ibv_poll_cq(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureStatus {
    /// The message is longer than the posted receive, or longer than the port can send.
    LocalLength,
    /// The queue pair was used against its configuration.
    LocalQueuePair,
    /// The local buffer is not covered by its region or its access rights.
    LocalProtection,
    /// The queue pair went to error before this request was worked on.
    Flushed,
    /// The peer's device refused the request as invalid.
    RemoteInvalidRequest,
    /// The peer's key, bounds or access rights do not allow the access.
    RemoteAccess,
    /// The peer could not complete it.
    RemoteOperation,
    /// The peer did not acknowledge in time, after all retries: it or the path to it is gone.
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
            Self::Flushed => f.write_str("flushed by an earlier error"),
            Self::RemoteInvalidRequest => f.write_str("remote invalid request error"),
            Self::RemoteAccess => f.write_str("remote access error"),
            Self::RemoteOperation => f.write_str("remote operation error"),
            Self::RetryExceeded => f.write_str("transport retry counter exceeded (peer unreachable)"),
            Self::RnrRetryExceeded => f.write_str("receiver-not-ready retry counter exceeded"),
            Self::Other(status) => write!(f, "work completion status {status}"),
        }
    }
}

/// The identity of a work request, chosen by the core and returned by the device untouched.
///
/// Shape: bit 63 tells a receive (1) from a send (0). A receive carries the number of its slot; a send
/// carries its sequence number, counted over the connection, so that one signalled completion vouches for
/// every send with a smaller number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WrId(pub u64);

const RECEIVE_BIT: u64 = 1 << 63;

/// A [`WrId`] taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WrKind {
    /// A receive, with its slot.
    Receive(u32),
    /// A send, with its sequence number.
    Send(u64),
}

impl WrId {
    /// The identity of the receive in `slot`.
    pub fn receive(slot: u32) -> Self {
        Self(RECEIVE_BIT | u64::from(slot))
    }

    /// The identity of the `sequence`-th send.
    pub fn send(sequence: u64) -> Self {
        Self(sequence & !RECEIVE_BIT)
    }

    /// Takes the identity apart. Every value has a meaning, so a device cannot break this.
    pub fn kind(self) -> WrKind {
        if self.0 & RECEIVE_BIT == 0 { WrKind::Send(self.0) } else { WrKind::Receive(self.0 as u32) }
    }
}
