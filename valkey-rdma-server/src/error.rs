//! Why a server could not start.

use std::io;
use std::net::SocketAddr;

use valkey_rdma_transport::TransportError;

/// A server could not listen as asked. Nothing of it is left running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// No listener was asked for.
    #[error("a server needs at least one address to listen on")]
    NoListener,
    /// The operating system refused a TCP address.
    #[error("cannot listen on {addr} (TCP)")]
    Tcp {
        /// The address asked for.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The RDMA device refused an address, or there is no such device.
    #[error(transparent)]
    Rdma(#[from] TransportError),
}
