//! [`Placed`]: what a call returns. [`Way`]: how the bytes went.

use std::fmt;

use valkey_rdma_resp::ServerError;
use valkey_rdma_transport::{DirectSlice, TransportError};

/// What [`Client::get_direct`](crate::Client::get_direct) and [`Client::set_direct`](crate::Client::set_direct) return.
#[derive(Debug)]
#[non_exhaustive]
pub struct Placed {
    /// Length of the value in bytes. `None`: the key does not exist. It may be less than the slices hold; what is behind it in them has no
    /// meaning.
    pub len: Option<usize>,
    /// The slices of the call, in their order.
    pub slices: Vec<DirectSlice>,
    /// Which way the bytes went.
    pub way: Way,
    /// The CRC-32C of the value, as the server reports it after a direct get. The client does not check it.
    pub crc32c: Option<u32>,
}

/// Which way the bytes of a call went.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Way {
    /// The server's adapter moved them.
    Direct,
    /// Over the stream, as those of GET and SET.
    Stream(NotDirect),
}

/// Why bytes went over the stream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NotDirect {
    /// The slices have no bytes.
    NoBytes,
    /// The client is connected over TCP or a Unix socket, or this call's connection fell back to TCP.
    NotRdma,
    /// The connection is encrypted, and direct transfers are plain.
    Encrypted,
    /// The server does not offer direct transfers.
    NotOffered,
    /// The memory cannot be registered: mostly because of the limit for locked memory.
    NotRegistered(TransportError),
    /// The server cannot move these bytes directly, for example because it cannot register memory. It is asked again for the next call.
    Refused(ServerError),
}

impl Way {
    /// Without the reason, as spans have it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Stream(_) => "stream",
        }
    }
}

/// `direct`, or `over the stream` with the reason.
impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.write_str("direct"),
            Self::Stream(reason) => write!(f, "over the stream: {reason}"),
        }
    }
}

impl fmt::Display for NotDirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBytes => f.write_str("the slices have no bytes"),
            Self::NotRdma => f.write_str("the client is not connected over RDMA"),
            Self::Encrypted => f.write_str("the connection is encrypted, and direct transfers are plain"),
            Self::NotOffered => f.write_str("the server does not offer direct transfers"),
            Self::NotRegistered(error) => write!(f, "the memory cannot be registered: {error}"),
            Self::Refused(error) => write!(f, "the server cannot do it directly: {error}"),
        }
    }
}
