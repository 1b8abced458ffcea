//! Protocol violations by the peer, and the reasons for which a connection ends.

use core::fmt;
use core::time::Duration;

use crate::features::FeatureSet;
use crate::work::FailureStatus;

/// The peer broke a clause of the protocol. Only the connection on which this happened ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A control message did not have exactly 32 bytes.
    #[error("control message of {len} bytes instead of 32 (clause {})", self.clause())]
    MessageLength {
        /// The length received.
        len: u32,
    },
    /// A control message was longer than the 32 bytes of a receive, so the device could not deliver it.
    #[error("control message of more than 32 bytes (clause {})", self.clause())]
    MessageTooLong,
    /// This side does not accept the opcode.
    #[error("unexpected control message opcode {opcode:#06x} (clause {})", self.clause())]
    Opcode {
        /// The opcode received.
        opcode: u16,
    },
    /// The peer offered a window of 0 bytes.
    #[error("peer registered a window of 0 bytes (clause {})", self.clause())]
    EmptyWindow,
    /// The peer's window exceeds our limit or the end of the address space.
    #[error(
        "peer registered a window of {len} bytes at {addr:#x}, beyond the limit of {limit} bytes (clause {})", self.clause()
    )]
    WindowTooLarge {
        /// The address announced.
        addr: u64,
        /// The length announced.
        len: u32,
        /// Our limit.
        limit: u32,
    },
    /// The peer offered another window while the current one was partly written: bytes in flight may be lost.
    #[error("peer registered a new window with {written} of {len} bytes of the old one written (clause {})", self.clause())]
    WindowReplaced {
        /// Bytes written into the old window.
        written: u32,
        /// Length of the old window.
        len: u32,
    },
    /// The immediate announces more bytes than our window has left.
    #[error("immediate announces {announced} bytes with {room} bytes of room (clause {})", self.clause())]
    ImmediateBeyondWindow {
        /// Bytes announced.
        announced: u32,
        /// Bytes that were left.
        room: u32,
    },
    /// The immediate announces fewer bytes than the write carried.
    #[error("immediate announces {announced} bytes after a write of {written} bytes (clause {})", self.clause())]
    ImmediateTooSmall {
        /// Bytes announced.
        announced: u32,
        /// Bytes the write carried.
        written: u32,
    },
    /// The peer asks questions faster than it takes the answers.
    #[error("more than {limit} control messages are waiting for the peer to take them (clause {})", self.clause())]
    TooManyRequests {
        /// Largest number of answers that may wait.
        limit: usize,
    },
    /// The client chose features that this side does not offer.
    #[error("the client chose features that were not offered: {features} (clause {})", self.clause())]
    FeatureNotOffered {
        /// The features that were not offered.
        features: FeatureSet,
    },
    /// The client chose features after its first bytes, or a second time.
    #[error("the client chose features after data or twice: {features} (clause {})", self.clause())]
    LateFeatures {
        /// The features that it chose now.
        features: FeatureSet,
    },
    /// The server offers features, and sent bytes before this side could choose.
    #[error("the server offers features and sent data before one could be chosen (clause {})", self.clause())]
    DataBeforeAgreement,
}

impl ProtocolError {
    /// Returns the id of the broken clause in `spec/protocol.md`.
    pub fn clause(&self) -> &'static str {
        match self {
            Self::MessageLength { .. } | Self::MessageTooLong => "M-1",
            Self::Opcode { .. } => "M-2",
            Self::EmptyWindow | Self::WindowTooLarge { .. } => "W-2",
            Self::WindowReplaced { .. } => "W-5",
            Self::ImmediateBeyondWindow { .. } => "I-2",
            Self::ImmediateTooSmall { .. } => "I-3",
            Self::TooManyRequests { .. } => "F-4",
            Self::FeatureNotOffered { .. } | Self::LateFeatures { .. } => "F-6",
            Self::DataBeforeAgreement => "F-7",
        }
    }
}

/// Why a connection ended. Reported once, by [`Event::Closed`](crate::Event::Closed).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// This side closed, and the peer's device has acknowledged all bytes.
    Local,
    /// This side closed, and some bytes were not acknowledged before the close deadline.
    LocalUnfinished {
        /// Bytes that the application wrote and that may not have arrived.
        bytes: u64,
    },
    /// The peer disconnected.
    Peer,
    /// The peer did not register its window in time.
    HandshakeTimeout {
        /// How long it had.
        after: Duration,
    },
    /// The server registered its window, but did not answer in time which features it offers.
    NoAnswer {
        /// How long it had.
        after: Duration,
    },
    /// The server does not offer what [`Config::requires`](crate::Config::requires) names. No byte was sent.
    NotOffered {
        /// The features that it does not offer.
        missing: FeatureSet,
    },
    /// Nothing was received from the peer for [`Config::idle_timeout`](crate::Config::idle_timeout).
    IdleTimeout {
        /// How long nothing came.
        after: Duration,
    },
    /// Data waited for the peer's next window for as long as [`Config::stall_timeout`](crate::Config::stall_timeout)
    /// allows.
    StallTimeout {
        /// How long it waited.
        after: Duration,
    },
    /// The peer's device did not acknowledge a keepalive.
    KeepaliveTimeout {
        /// The keepalive periods that passed.
        missed: u32,
    },
    /// The peer broke the protocol.
    Protocol(ProtocolError),
    /// A work request failed.
    Failed(FailureStatus),
    /// The device rejected a work request or was removed.
    Device,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("closed on this side"),
            Self::LocalUnfinished { bytes } => {
                write!(f, "closed on this side with {bytes} bytes not acknowledged")
            }
            Self::Peer => f.write_str("the peer disconnected"),
            Self::HandshakeTimeout { after } => {
                write!(f, "the peer did not complete the handshake (no RegisterXferMemory) within {after:?}")
            }
            Self::NoAnswer { after } => {
                write!(f, "the server did not answer which features it offers within {after:?}")
            }
            Self::NotOffered { missing } => {
                write!(f, "the server does not offer what is required on this connection: {missing}")
            }
            Self::IdleTimeout { after } => write!(f, "nothing received from the peer for {after:?}"),
            Self::StallTimeout { after } => {
                write!(f, "the peer is alive but offered no receive window for {after:?}")
            }
            Self::KeepaliveTimeout { missed } => {
                write!(f, "the peer did not acknowledge a keepalive for {missed} periods")
            }
            Self::Protocol(error) => write!(f, "{error}"),
            Self::Failed(FailureStatus::Flushed) => f.write_str(
                "the queue pair failed without an error on this side; usually the peer wrote outside of its window",
            ),
            Self::Failed(status @ FailureStatus::RemoteAccess) => {
                write!(f, "{status}: the peer's window is gone, as when its process is killed, or is not what it said")
            }
            Self::Failed(status) => write!(f, "{status}"),
            Self::Device => f.write_str("the RDMA device rejected a work request or was removed"),
        }
    }
}
