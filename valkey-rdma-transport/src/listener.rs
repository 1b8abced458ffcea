//! Accepting streams.

use std::fmt;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use valkey_rdma_proto::Role;

use crate::config::Config;
use crate::device::{self, DeviceKind, PassiveEndpoint};
use crate::error::TransportError;
use crate::stream::Stream;

/// Listens for connections on one address of one device: what a `TcpListener` is for TCP.
///
/// Dropping it stops listening; accepted streams go on.
pub struct Listener {
    passive: Box<dyn PassiveEndpoint>,
    config: Config,
}

impl Listener {
    /// Listens on `addr`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`TransportError::Listen`] if the address cannot be listened on, [`TransportError::NotBuilt`] if this
    /// build lacks the device.
    ///
    /// Cancel safety: dropping the future leaves nothing behind.
    pub async fn bind(device: DeviceKind, addr: SocketAddr, config: &Config) -> Result<Self, TransportError> {
        let passive = device::listen(device, addr, &config.endpoint_options()).await?;
        Ok(Self::over(passive, config))
    }

    /// Accepts what a passive endpoint made elsewhere accepts: one of [`device::listen`] behind a wrapper that
    /// observes it or disturbs it.
    pub fn over(passive: Box<dyn PassiveEndpoint>, config: &Config) -> Self {
        Self { passive, config: config.clone() }
    }

    /// Waits for the next connection. The stream is returned as soon as its request is accepted; reading from
    /// it and writing to it waits for the peer's memory.
    ///
    /// # Errors
    /// Those of one request that could not be accepted, such as [`TransportError::Memory`]. The listener goes
    /// on: call again.
    ///
    /// Cancel safety: no connection is lost if the future is dropped.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn accept(&mut self) -> Result<Stream, TransportError> {
        std::future::poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// The poll form of [`accept`](Self::accept).
    ///
    /// # Errors
    /// As there.
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Stream, TransportError>> {
        let endpoint = ready!(self.passive.poll_accept(cx))?;
        Poll::Ready(Stream::establish(endpoint, Role::Server, &self.config))
    }

    /// The address it listens on, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.passive.local_addr()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("local_addr", &self.local_addr()).finish_non_exhaustive()
    }
}
