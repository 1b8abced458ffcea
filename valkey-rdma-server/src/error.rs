//! [`BindError`]: why a server cannot listen.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;

use valkey_rdma_transport::TransportError;
use valkey_rdma_transport::address::listen_advice;

/// A server cannot listen on one of its addresses.
///
/// `Debug` is the text of `Display` with its causes, because that is what a `main` that returns the error prints.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// No address was given.
    #[error("a server needs at least one address to listen on")]
    NoListener,
    /// A URL to listen on is wrong.
    #[error("cannot listen on \"{url}\": {reason}")]
    Url {
        /// As given, without scheme and login if there is a login.
        url: String,
        /// What is wrong with it.
        reason: Cow<'static, str>,
    },
    /// The host of a URL to listen on has no address.
    #[error("cannot listen on {host}: the name does not resolve")]
    Resolve {
        /// The host.
        host: String,
        /// The system's error.
        source: io::Error,
    },
    /// The operating system refused a TCP address.
    #[error("cannot listen on {addr} (TCP){}", listen_advice(*.addr, .source))]
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

impl fmt::Debug for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut cause = self.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
