//! What a connection is and what it has done: [`ConnectionInfo`] and [`Counters`].

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::endpoint::{Protocol, Transport};

/// What a connection runs on, so that nobody needs to guess whether it is RDMA.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// What carries the bytes.
    pub transport: Transport,
    /// The server's address; none on a stream that the caller brought along.
    pub peer: Option<SocketAddr>,
    /// The RDMA device; none on TCP.
    pub device: Option<String>,
    /// The active path MTU of the device in bytes, where it has one.
    pub mtu: Option<u32>,
    /// Our receive buffer in bytes, which the server writes to; none on TCP.
    pub rx_window: Option<u32>,
    /// The server's receive buffer in bytes, which we write to; none on TCP.
    pub tx_window: Option<u32>,
    /// The protocol version agreed on.
    pub protocol: Protocol,
}

/// One line, such as `rdma to 10.0.0.7:6379 (resp3, device mlx5_0, windows 1048576 in and 1048576 out)`.
impl fmt::Display for ConnectionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.transport)?;
        if let Some(peer) = self.peer {
            write!(f, " to {peer}")?;
        }
        write!(f, " ({}", self.protocol)?;
        if let Some(device) = &self.device {
            write!(f, ", device {device}")?;
        }
        if let (Some(rx), Some(tx)) = (self.rx_window, self.tx_window) {
            write!(f, ", windows {rx} in and {tx} out")?;
        }
        f.write_str(")")
    }
}

/// What the multiplexer has done on a connection, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Commands handed to the transport, those of pipelines included.
    pub commands: u64,
    /// Batches they left in. Commands per batch tell what sharing the connection saves.
    pub batches: u64,
    /// Replies received.
    pub replies: u64,
    /// Push messages received and ignored.
    pub pushes: u64,
}

/// [`Counters`] while they count. Each is written by the driver alone.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) commands: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) replies: AtomicU64,
    pub(crate) pushes: AtomicU64,
}

impl Tally {
    pub(crate) fn read(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            commands: read(&self.commands),
            batches: read(&self.batches),
            replies: read(&self.replies),
            pushes: read(&self.pushes),
        }
    }
}
