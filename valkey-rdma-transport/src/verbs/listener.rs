//! The passive side: connect requests on one address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;

use super::cm::{self, ConnectRequest, EventChannel, RawIdentifier};
use super::endpoint::VerbsEndpoint;
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
        Ok(Self { id, events, options: options.clone(), local_addr })
    }

    fn make_endpoint(&self, request: ConnectRequest) -> Result<Box<dyn Endpoint>, TransportError> {
        let id = request.adopt(self.options.device.as_deref())?;
        Ok(Box::new(VerbsEndpoint::new(id, &self.options)?))
    }
}

impl PassiveEndpoint for VerbsListener {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<dyn Endpoint>, TransportError>> {
        loop {
            // SAFETY: the channel has the listening identifier, whose owner we are, and those of requests not
            // answered yet, which nobody else has.
            let notice = ready!(unsafe { cm::poll_notice(&self.events, cx) })?;
            match (notice.kind, notice.id) {
                (EventKind::ConnectRequest, Some(id)) => {
                    let channel = Arc::clone(self.events.get_ref());
                    // SAFETY: just taken from this channel, and in nobody's hands yet.
                    let request = unsafe { ConnectRequest::new(id, channel) };
                    return Poll::Ready(self.make_endpoint(request));
                }
                (EventKind::Contract(CmEvent::DeviceRemoved), id) if id == Some(self.id.raw()) => {
                    return Poll::Ready(Err(TransportError::DeviceRemoved));
                }
                (other, _) => tracing::debug!(event = ?other, "connection manager event passed over"),
            }
        }
    }

    fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }
}
