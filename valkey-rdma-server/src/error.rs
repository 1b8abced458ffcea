//! [`BindError`]: why a server cannot listen.

use std::io;
use std::net::SocketAddr;

use valkey_rdma_transport::TransportError;

/// A server cannot listen on one of its addresses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// No address was given.
    #[error("a server needs at least one address to listen on")]
    NoListener,
    /// The operating system refused a TCP address.
    #[error("cannot listen on {addr} (TCP)")]
    Tcp {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The threads of [`Builder::threads`](crate::Builder::threads) could not be started.
    #[error("cannot start {count} threads")]
    Threads {
        /// How many were asked for.
        count: usize,
        /// The system's error.
        source: io::Error,
    },
    /// The RDMA device refused an address, or there is no such device.
    #[error(transparent)]
    Rdma(#[from] TransportError),
}
