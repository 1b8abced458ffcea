//! The emulated listener: on sockets, in this process's directory, or both.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::device::{Conditions, Link};
use super::directory::{DirectRequest, Entry};
use super::endpoint::EmulatedEndpoint;
use super::side::Side;
use super::socket::{SocketListener, SocketRequest};
use crate::device::{ConnectRequest, DeviceConnection, DeviceKind, DeviceListener, DeviceOptions};
use crate::error::TransportError;

/// Listens on one address, over what the device's [`Link`] says.
#[derive(Debug)]
pub(super) struct EmulatedListener {
    addr: SocketAddr,
    options: DeviceOptions,
    conditions: Arc<Conditions>,
    entry: Option<Entry>,
    sockets: Option<SocketListener>,
}

/// A connect request that nobody has answered. Dropping it rejects it.
struct Request {
    came: Came,
    to: SocketAddr,
    conditions: Arc<Conditions>,
}

/// The ways a request can come.
enum Came {
    Direct(DirectRequest),
    Socket(SocketRequest),
}

impl EmulatedListener {
    pub(super) fn bind(addr: SocketAddr, options: &DeviceOptions) -> Result<Self, TransportError> {
        let conditions = Conditions::named(options.device.as_deref())?;
        let refused = |source| TransportError::Listen { addr, device: DeviceKind::Emulated, source };
        // Sockets first: they know which ports are free on this machine.
        let sockets = match &conditions.link {
            Link::InProcess => None,
            Link::Any | Link::Tcp => Some(SocketListener::tcp(addr).map_err(refused)?),
            Link::Unix(directory) => Some(SocketListener::unix(directory, addr).map_err(refused)?),
        };
        let bound = sockets.as_ref().map_or(addr, SocketListener::local_addr);
        let entry = match &conditions.link {
            Link::Any | Link::InProcess => Some(Entry::new(bound).map_err(refused)?),
            Link::Tcp | Link::Unix(_) => None,
        };
        let addr = entry.as_ref().map_or(bound, Entry::addr);
        Ok(Self { addr, options: options.clone(), conditions, entry, sockets })
    }

    fn poll_came(&mut self, cx: &mut Context<'_>) -> Poll<Result<Came, TransportError>> {
        if let Some(entry) = &mut self.entry
            && let Poll::Ready(request) = entry.poll_request(cx)
        {
            return Poll::Ready(Ok(Came::Direct(request)));
        }
        let Some(sockets) = &mut self.sockets else { return Poll::Pending };
        let (options, conditions) = (&self.options, &self.conditions);
        sockets.poll_request(cx, || Side::new(options, conditions.clone())).map_ok(Came::Socket)
    }
}

impl DeviceListener for EmulatedListener {
    fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Box<dyn ConnectRequest>, TransportError>> {
        let came = ready!(self.poll_came(cx))?;
        Poll::Ready(Ok(Box::new(Request { came, to: self.addr, conditions: self.conditions.clone() })))
    }

    fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    fn device(&self) -> DeviceKind {
        DeviceKind::Emulated
    }
}

impl ConnectRequest for Request {
    fn peer_addr(&self) -> SocketAddr {
        match &self.came {
            Came::Direct(request) => request.from,
            Came::Socket(request) => request.from,
        }
    }

    fn accept(self: Box<Self>, options: &DeviceOptions) -> Result<Box<dyn DeviceConnection>, TransportError> {
        let Request { came, to, conditions } = *self;
        Ok(Box::new(match came {
            Came::Direct(request) => EmulatedEndpoint::accept_direct(request, to, options, conditions)?,
            Came::Socket(request) => EmulatedEndpoint::accept_socket(request, options, conditions)?,
        }))
    }
}
