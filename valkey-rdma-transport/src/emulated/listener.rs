//! The emulated listener: on sockets, in this process's directory, or both.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::connection::EmulatedConnection;
use super::device::{FaultPlan, Link, named};
use super::directory::{DirectRequest, Entry};
use super::queue_pair::QueuePair;
use super::socket::{SocketListener, SocketRequest};
use crate::device::{ConnectRequest, DeviceConnection, DeviceKind, DeviceListener, DeviceOptions};
use crate::error::TransportError;

/// Listens on one address, over what the device's [`Link`] says.
#[derive(Debug)]
pub(super) struct EmulatedListener {
    addr: SocketAddr,
    options: DeviceOptions,
    plan: Arc<FaultPlan>,
    entry: Option<Entry>,
    sockets: Option<SocketListener>,
}

/// A pending connect request. Dropping it rejects it.
struct Request {
    incoming: Incoming,
    to: SocketAddr,
    plan: Arc<FaultPlan>,
}

/// The ways a request can come.
enum Incoming {
    Direct(DirectRequest),
    Socket(SocketRequest),
}

impl EmulatedListener {
    pub(super) fn bind(addr: SocketAddr, options: &DeviceOptions) -> Result<Self, TransportError> {
        let plan = named(options.device.as_deref())?;
        let refused = |source: io::Error| TransportError::Listen {
            addr,
            device: DeviceKind::Emulated,
            source: source.into(),
        };
        // Sockets first: they know which ports are free on this machine.
        let sockets = match &plan.link {
            Link::InProcess => None,
            Link::Any | Link::Tcp => Some(SocketListener::tcp(addr).map_err(refused)?),
            Link::Unix(directory) => Some(SocketListener::unix(directory, addr).map_err(refused)?),
        };
        let bound = sockets.as_ref().map_or(addr, SocketListener::local_addr);
        let entry = match &plan.link {
            Link::Any | Link::InProcess => Some(Entry::new(bound).map_err(refused)?),
            Link::Tcp | Link::Unix(_) => None,
        };
        let addr = entry.as_ref().map_or(bound, Entry::addr);
        Ok(Self { addr, options: options.clone(), plan, entry, sockets })
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Result<Incoming, TransportError>> {
        if let Some(entry) = &mut self.entry
            && let Poll::Ready(request) = entry.poll_request(cx)
        {
            return Poll::Ready(Ok(Incoming::Direct(request)));
        }
        let Some(sockets) = &mut self.sockets else { return Poll::Pending };
        let (options, plan) = (&self.options, &self.plan);
        sockets.poll_request(cx, || QueuePair::new(options, plan.clone())).map_ok(Incoming::Socket)
    }
}

impl DeviceListener for EmulatedListener {
    fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Box<dyn ConnectRequest>, TransportError>> {
        let incoming = ready!(self.poll_incoming(cx))?;
        Poll::Ready(Ok(Box::new(Request { incoming, to: self.addr, plan: self.plan.clone() })))
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
        match &self.incoming {
            Incoming::Direct(request) => request.from,
            Incoming::Socket(request) => request.from,
        }
    }

    fn accept(self: Box<Self>, options: &DeviceOptions) -> Result<Box<dyn DeviceConnection>, TransportError> {
        let Request { incoming, to, plan } = *self;
        Ok(Box::new(match incoming {
            Incoming::Direct(request) => EmulatedConnection::accept_direct(request, to, options, plan)?,
            Incoming::Socket(request) => EmulatedConnection::accept_socket(request, options, plan)?,
        }))
    }
}
