//! The emulated listener: on sockets, in this process's directory, or both.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::device::{Conditions, Link};
use super::directory::{DirectRequest, Entry};
use super::endpoint::EmulatedEndpoint;
use super::socket::{SocketListener, SocketRequest};
use crate::device::{DeviceKind, Endpoint, EndpointOptions, PassiveEndpoint};
use crate::error::TransportError;

/// Listens on one address, over what the device's [`Link`] says.
#[derive(Debug)]
pub(super) struct EmulatedListener {
    addr: SocketAddr,
    options: EndpointOptions,
    conditions: Arc<Conditions>,
    entry: Option<Entry>,
    sockets: Option<SocketListener>,
}

/// A connect request that nobody has answered. Dropping it rejects it.
enum Request {
    Direct(DirectRequest),
    Socket(SocketRequest),
}

impl EmulatedListener {
    pub(super) fn bind(addr: SocketAddr, options: &EndpointOptions) -> Result<Self, TransportError> {
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

    fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<Result<Request, TransportError>> {
        if let Some(entry) = &mut self.entry
            && let Poll::Ready(request) = entry.poll_request(cx)
        {
            return Poll::Ready(Ok(Request::Direct(request)));
        }
        let Some(sockets) = &mut self.sockets else { return Poll::Pending };
        sockets
            .poll_request(cx)
            .map_ok(Request::Socket)
            .map_err(|source| TransportError::Device { call: "accept", source })
    }
}

impl PassiveEndpoint for EmulatedListener {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<dyn Endpoint>, TransportError>> {
        self.poll_request(cx).map_ok(|request| {
            let (options, conditions) = (&self.options, self.conditions.clone());
            let endpoint = match request {
                Request::Direct(request) => {
                    EmulatedEndpoint::accept_direct(request, self.addr, options, conditions)
                }
                Request::Socket(request) => EmulatedEndpoint::accept_socket(request, options, conditions),
            };
            Box::new(endpoint) as Box<dyn Endpoint>
        })
    }

    fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}
