//! The passive side of the contract: requests to connect, each seen before anything is made for it.

use std::net::SocketAddr;
use std::task::{Context, Poll};

use super::{DeviceConnection, DeviceKind, DeviceOptions};
use crate::error::TransportError;

/// Waits for connect requests on one address.
pub trait DeviceListener: Send {
    /// Waits for the next connect request. `Pending` keeps the waker.
    ///
    /// # Errors
    /// [`TransportError::Device`], [`TransportError::WrongDevice`] and the like if a request cannot be taken: that
    /// one was rejected, the listener goes on. [`TransportError::DeviceRemoved`] is the listener's own end: no request
    /// will come any more, and every later call returns it too.
    fn poll_request(&mut self, cx: &mut Context<'_>)
    -> Poll<Result<Box<dyn ConnectRequest>, TransportError>>;

    /// The address it listens on, with the real port.
    fn local_addr(&self) -> SocketAddr;

    /// The kind of its device.
    fn device(&self) -> DeviceKind;
}

/// A peer that asks to connect. It waits, and nothing has been made for it yet: no queue pair, no pinned memory.
///
/// Dropping it rejects the request; the peer sees [`CmEvent::Rejected`](super::CmEvent::Rejected). It outlives
/// the [`DeviceListener`] it came from.
pub trait ConnectRequest: Send {
    /// Who asks.
    fn peer_addr(&self) -> SocketAddr;

    /// Makes an unconnected [`DeviceConnection`] for the request, whose [`establish`](DeviceConnection::establish) accepts it.
    /// Dropping the connection before that rejects the request.
    ///
    /// # Errors
    /// [`TransportError::Device`] and [`TransportError::Memory`] if an object cannot be made: the request was
    /// rejected.
    fn accept(self: Box<Self>, options: &DeviceOptions) -> Result<Box<dyn DeviceConnection>, TransportError>;
}
