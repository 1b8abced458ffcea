//! The passive side: connect requests on one address.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;

use super::cm::{self, ConnectRequest, EventChannel, RawIdentifier};
use super::endpoint::VerbsEndpoint;
use super::inventory::Inventory;
use super::sys;
use super::translate::EventKind;
use crate::device::{CmEvent, DeviceKind, Endpoint, EndpointOptions, PassiveEndpoint};
use crate::error::TransportError;

/// A listening identifier with its event channel.
pub(super) struct VerbsListener {
    id: RawIdentifier,
    events: AsyncFd<Arc<EventChannel>>,
    options: EndpointOptions,
    local_addr: SocketAddr,
}

impl VerbsListener {
    pub(super) fn bind(addr: SocketAddr, options: &EndpointOptions) -> Result<Self, TransportError> {
        let (addr, options) = place(addr, options)?;
        let refused = |source| TransportError::Listen { addr, device: DeviceKind::Verbs, source };
        let channel = EventChannel::new()?;
        let id = RawIdentifier::new(Arc::clone(&channel))?;
        // SAFETY: the identifier is live.
        unsafe { sys::set_one_family(id.raw()) }.map_err(refused)?;
        // SAFETY: as above.
        unsafe { sys::bind_addr(id.raw(), addr) }.map_err(refused)?;
        // A wildcard address binds to no device; then each request is checked.
        id.check_device(options.device.as_deref(), addr)?;
        // SAFETY: as above.
        unsafe { sys::listen(id.raw()) }.map_err(refused)?;
        // SAFETY: as above.
        let local_addr = unsafe { sys::local_addr(id.raw()) }.map_err(refused)?;
        let events = channel.watch()?;
        Ok(Self { id, events, options, local_addr })
    }

    /// Waits for the next connect request that can be made an endpoint of.
    pub(super) fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<VerbsEndpoint, TransportError>> {
        loop {
            // SAFETY: the channel has the listening identifier, whose owner we are, and those of requests not
            // answered yet, which nobody else has.
            let notice = ready!(unsafe { cm::poll_notice(&self.events, cx) })?;
            match (notice.kind, notice.id) {
                (EventKind::ConnectRequest, Some(id)) => {
                    let channel = Arc::clone(self.events.get_ref());
                    // SAFETY: just taken from this channel, and in nobody's hands yet.
                    let request = unsafe { ConnectRequest::new(id, channel) };
                    let id = request.adopt(self.options.device.as_deref());
                    return Poll::Ready(id.and_then(|id| VerbsEndpoint::new(id, &self.options)));
                }
                (EventKind::Contract(CmEvent::DeviceRemoved), id) if id == Some(self.id.raw()) => {
                    return Poll::Ready(Err(TransportError::DeviceRemoved));
                }
                (other, _) => tracing::debug!(event = ?other, "connection manager event passed over"),
            }
        }
    }
}

/// Where to listen, with the choice by GID index resolved into address and device.
fn place(
    addr: SocketAddr,
    options: &EndpointOptions,
) -> Result<(SocketAddr, EndpointOptions), TransportError> {
    let mut options = options.clone();
    if let Some(source) = options.source.filter(|source| *source != addr.ip()) {
        let reason = format!("the source address {source} was chosen too: leave it out, or listen on it");
        let source = io::Error::new(io::ErrorKind::InvalidInput, reason);
        return Err(TransportError::Listen { addr, device: DeviceKind::Verbs, source });
    }
    let Some(index) = options.gid else { return Ok((addr, options)) };
    let gid = Inventory::of_this_machine().gid(options.device.as_deref(), index)?;
    if !addr.ip().is_unspecified() {
        gid.must_stand_for(addr.ip())?;
    }
    let addr = gid.addr(addr.port());
    options.device = Some(gid.device);
    Ok((addr, options))
}

impl PassiveEndpoint for VerbsListener {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<dyn Endpoint>, TransportError>> {
        self.poll_request(cx).map_ok(|endpoint| Box::new(endpoint) as Box<dyn Endpoint>)
    }

    fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }
}
