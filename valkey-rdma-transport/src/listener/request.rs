//! A request to connect, before anything is made for it.

use std::fmt;
use std::net::SocketAddr;

use valkey_rdma_proto::Role;

use crate::config::Config;
use crate::device::{ConnectRequest, SharedCq};
use crate::error::TransportError;
use crate::limiter::{ConnectionPermit, Limiter};
use crate::stream::Stream;

/// A request to connect, with the permit reserved for it. Dropping it rejects the request: the peer's connect ends
/// in [`TransportError::Rejected`].
pub struct Request {
    request: Box<dyn ConnectRequest>,
    permit: ConnectionPermit,
    limiter: Limiter,
    config: Config,
}

impl Request {
    pub(super) fn new(
        request: Box<dyn ConnectRequest>,
        permit: ConnectionPermit,
        limiter: Limiter,
        config: &Config,
    ) -> Self {
        Self { request, permit, limiter, config: config.clone() }
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.request.peer_addr()
    }

    /// Shares completion queues with the other connections of this group, instead of the listener's: see
    /// [`Config::shared_cq`].
    #[must_use]
    pub fn shared_cq(mut self, group: &SharedCq) -> Self {
        self.config = self.config.shared_cq(group);
        self
    }

    /// Accepts: makes the connection's queue pair and pins its memory, [`Config::pinned_bytes`] of it. Blocks for
    /// milliseconds, so it may run in `spawn_blocking`.
    ///
    /// # Errors
    /// [`TransportError::Memory`] and [`TransportError::Device`] if that cannot be had: the request was rejected.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn accept(self) -> Result<Stream, TransportError> {
        let device = self.request.accept(&self.config.device_options());
        let stream = device
            .and_then(|device| Stream::establish(device, Role::Server, &self.config, Some(self.permit)));
        match &stream {
            Ok(_) => self.limiter.count_accepted(),
            Err(_) => self.limiter.count_failed(),
        }
        stream
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("peer", &self.peer_addr()).finish_non_exhaustive()
    }
}
