//! Accepting streams, within limits.

use std::fmt;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use valkey_rdma_proto::{FeatureSet, Role};

use crate::config::Config;
use crate::device::{self, ConnectRequest, DeviceKind, DeviceListener, SharedCq};
use crate::error::TransportError;
use crate::limiter::{ConnectionPermit, Limiter, Limits};
use crate::stats::ListenerStats;
use crate::stream::Stream;

/// Listens for connections on one address of one device: what a `TcpListener` is for TCP.
///
/// Its connections together stay within [`Config::max_connections`] and [`Config::max_pinned_bytes`]. Further
/// requests are rejected before a queue pair is made or memory is pinned for them, counted in [`stats`](Self::stats),
/// and logged once per burst. Dropping the listener stops listening and rejects pending requests; accepted streams go
/// on.
///
/// # Blocking
/// Accepting makes a queue pair and pins [`Config::pinned_bytes`] of memory, which takes milliseconds, within
/// [`accept`](Self::accept). Where that delays other tasks, take the [`request`](Self::request) and accept it on
/// another thread: `spawn_blocking(move || request.accept())`.
pub struct Listener {
    device: Box<dyn DeviceListener>,
    config: Config,
    limiter: Limiter,
}

impl Listener {
    /// Listens on `addr`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`TransportError::Listen`] if the address cannot be listened on, [`TransportError::NotBuilt`] if this
    /// build lacks the device.
    ///
    /// Cancel safety: dropping the future leaves nothing behind.
    pub async fn bind(kind: DeviceKind, addr: SocketAddr, config: &Config) -> Result<Self, TransportError> {
        let device = device::listen(kind, addr, &config.device_options()).await?;
        Ok(Self::over(device, config))
    }

    /// Accepts the connections of a device listener made by the caller: one of [`device::listen`] behind a wrapper that
    /// observes it or disturbs it.
    #[doc(hidden)]
    pub fn over(device: Box<dyn DeviceListener>, config: &Config) -> Self {
        let limits = Limits { connections: config.max_connections, pinned_bytes: config.max_pinned_bytes };
        Self { device, config: config.clone(), limiter: Limiter::new(limits) }
    }

    /// Offers features to the peers that ask: see [`Config::offers`].
    #[must_use]
    pub fn offers(mut self, features: FeatureSet) -> Self {
        self.config = self.config.offers(features);
        self
    }

    /// Waits for the next connection. The stream is returned as soon as its request is accepted; reading from
    /// it and writing to it waits for the peer's memory.
    ///
    /// # Errors
    /// Those of one request that could not be accepted, such as [`TransportError::Memory`]: the listener goes
    /// on, call again. [`TransportError::DeviceRemoved`] is the listener's own end, and every later call returns it too:
    /// drop the listener.
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
    /// Same errors as [`accept`](Self::accept).
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Stream, TransportError>> {
        let request = ready!(self.poll_request(cx))?;
        Poll::Ready(request.accept())
    }

    /// Waits for the next request to connect that the limits have room for, and leaves the decision to the caller:
    /// [`Request::accept`] it, or drop it to reject it. Until then it costs neither a queue pair nor pinned memory.
    ///
    /// # Errors
    /// Those of one request that could not be taken: the listener goes on, call again. Or the listener's own end, as for
    /// [`accept`](Self::accept).
    ///
    /// Cancel safety: no request is lost if the future is dropped.
    pub async fn request(&mut self) -> Result<Request, TransportError> {
        std::future::poll_fn(|cx| self.poll_request(cx)).await
    }

    /// The poll form of [`request`](Self::request).
    ///
    /// # Errors
    /// Same errors as [`request`](Self::request).
    pub fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<Result<Request, TransportError>> {
        for _ in 0..REFUSED_AT_ONCE {
            let request =
                ready!(self.device.poll_request(cx)).inspect_err(|_| self.limiter.count_failed())?;
            if let Some(permit) = self.limiter.try_acquire(request.peer_addr(), self.config.pinned_bytes()) {
                return Poll::Ready(Ok(Request::new(request, permit, self.limiter.clone(), &self.config)));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Stops listening and waits until the streams accepted here are gone, for `limit` at most. Pending requests are
    /// rejected at once, and later ones find no listener. The streams go on undisturbed, until their owners end them.
    /// Returns how many were left at the limit.
    ///
    /// A stream is gone when its connection has ended and its memory is unpinned.
    ///
    /// Cancel safety: it no longer listens, even if the future is dropped before the streams are gone. Dropping it
    /// before it is first polled drops the listener.
    pub async fn shutdown(self, limit: Duration) -> usize {
        let Self { device, limiter, .. } = self;
        tracing::debug!(addr = %device.local_addr(), connections = limiter.stats().connections, "listener shut down");
        drop(device);
        // If that took too long, the count says so.
        let _ = tokio::time::timeout(limit, limiter.until_free()).await;
        limiter.stats().connections
    }

    /// The address it listens on, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.device.local_addr()
    }

    /// The kind of its device.
    pub fn device(&self) -> DeviceKind {
        self.device.device()
    }

    /// The counts so far, and what its connections take now.
    pub fn stats(&self) -> ListenerStats {
        self.limiter.stats()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("local_addr", &self.local_addr()).finish_non_exhaustive()
    }
}

/// Requests refused in a row before other tasks run.
const REFUSED_AT_ONCE: usize = 32;

/// A request to connect, with the permit reserved for it. Dropping it rejects the request: the peer's connect ends
/// in [`TransportError::Rejected`].
pub struct Request {
    request: Box<dyn ConnectRequest>,
    permit: ConnectionPermit,
    limiter: Limiter,
    config: Config,
}

impl Request {
    fn new(
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
