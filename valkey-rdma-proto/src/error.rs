//! What a peer, or our own caller, did wrong; and how a connection ended.

use core::fmt;
use core::time::Duration;

use crate::work::FailureStatus;

/// The peer broke a clause of the protocol. The connection it did this on is over; nothing else is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A control message must have exactly 32 bytes.
    #[error("control message of {len} bytes instead of 32 (clause {})", self.clause())]
    MessageLength {
        /// The length received.
        len: u32,
    },
    /// The opcode is none that this side accepts.
    #[error("unexpected control message opcode {opcode:#06x} (clause {})", self.clause())]
    Opcode {
        /// The opcode received.
        opcode: u16,
    },
    /// The peer offered no memory.
    #[error("peer registered a window of 0 bytes (clause {})", self.clause())]
    EmptyWindow,
    /// The peer's window is beyond our limit, or beyond the end of the address space.
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
    /// The peer offered new memory while the old was partly written: bytes under way may be lost.
    #[error("peer registered a new window with {written} of {len} bytes of the old one written (clause {})", self.clause())]
    WindowReplaced {
        /// Bytes written into the old window.
        written: u32,
        /// Length of the old window.
        len: u32,
    },
    /// The immediate announces more bytes than our window has room for.
    #[error("immediate announces {announced} bytes with {room} bytes of room (clause {})", self.clause())]
    ImmediateBeyondWindow {
        /// Bytes announced.
        announced: u32,
        /// Bytes of room that were left.
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
    /// The peer asks for answers faster than it takes them.
    #[error("more than {limit} control messages are waiting for the peer to take them (clause {})", self.clause())]
    TooManyRequests {
        /// How many may wait.
        limit: usize,
    },
}

impl ProtocolError {
    /// The id of the clause that the peer broke, as in `spec/protocol.md`.
    pub fn clause(&self) -> &'static str {
        match self {
            Self::MessageLength { .. } => "M-1",
            Self::Opcode { .. } => "M-2",
            Self::EmptyWindow | Self::WindowTooLarge { .. } => "W-2",
            Self::WindowReplaced { .. } => "W-5",
            Self::ImmediateBeyondWindow { .. } => "I-2",
            Self::ImmediateTooSmall { .. } => "I-3",
            Self::TooManyRequests { .. } => "F-4",
        }
    }
}

/// Why a connection ended. Told once, by [`Event::Closed`](crate::Event::Closed).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// This side closed, and everything written before was acknowledged by the peer's device.
    Local,
    /// This side closed, and the close deadline passed with this many bytes not acknowledged.
    LocalUnfinished {
        /// Bytes written by the application whose arrival is unknown.
        bytes: u64,
    },
    /// The peer disconnected.
    Peer,
    /// The peer did not offer its memory in time.
    HandshakeTimeout,
    /// Nothing was heard from the peer for as long as [`Config::idle_timeout`](crate::Config::idle_timeout) allows.
    IdleTimeout,
    /// Data waited for the peer's next window for as long as [`Config::stall_timeout`](crate::Config::stall_timeout)
    /// allows.
    StallTimeout {
        /// How long it waited.
        after: Duration,
    },
    /// The peer did not take this many keepalives.
    KeepaliveTimeout {
        /// How many periods passed.
        missed: u32,
    },
    /// The peer broke the protocol.
    Protocol(ProtocolError),
    /// A work request failed.
    Failed(FailureStatus),
    /// The device is gone, or refused a work request.
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
            Self::HandshakeTimeout => f.write_str("the peer did not offer its memory in time"),
            Self::IdleTimeout => f.write_str("the peer was not heard for too long"),
            Self::StallTimeout { after } => {
                write!(f, "the peer is alive but offered no receive window for {after:?}")
            }
            Self::KeepaliveTimeout { missed } => write!(f, "the peer took no keepalive for {missed} periods"),
            Self::Protocol(error) => write!(f, "{error}"),
            Self::Failed(status) => write!(f, "{status}"),
            Self::Device => f.write_str("the device refused or is gone"),
        }
    }
}
