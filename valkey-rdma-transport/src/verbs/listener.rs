//! The passive side: connect requests on one address.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;

use super::cm::{self, RawCmId};
use super::connection::VerbsConnection;
use super::event_channel::{EventChannel, poll_notice};
use super::sys;
use super::sys::convert::EventKind;
use super::sysfs::Sysfs;
use crate::device::{CmEvent, ConnectRequest, DeviceConnection, DeviceKind, DeviceListener, DeviceOptions};
use crate::error::TransportError;

/// A listening identifier with its event channel.
pub(super) struct VerbsListener {
    id: RawCmId,
    events: AsyncFd<Arc<EventChannel>>,
    /// Requests over any other device are rejected.
    device: Option<String>,
    local_addr: SocketAddr,
    /// The device is gone. The connection manager says so once.
    removed: bool,
}

impl VerbsListener {
    pub(super) fn bind(addr: SocketAddr, options: &DeviceOptions) -> Result<Self, TransportError> {
        let (addr, options) = place(addr, options)?;
        let refused = |source| TransportError::Listen { addr, device: DeviceKind::Verbs, source };
        let channel = EventChannel::new()?;
        let id = RawCmId::new(Arc::clone(&channel))?;
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
        Ok(Self { id, events, device: options.device, local_addr, removed: false })
    }

    /// Waits for the next connect request.
    pub(super) fn poll_connect_request(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<cm::ConnectRequest, TransportError>> {
        while !self.removed {
            // SAFETY: of the identifiers on the channel, the listening one and those of requests without an answer,
            // none has a queue pair.
            let notice = ready!(unsafe { poll_notice(&self.events, cx) })?;
            match (notice.kind, notice.id) {
                (EventKind::ConnectRequest, Some(id)) => {
                    let channel = Arc::clone(self.events.get_ref());
                    // SAFETY: just taken from this channel, and held by nothing else yet.
                    let request =
                        unsafe { cm::ConnectRequest::new(id, channel, self.device.as_deref(), notice.reads) };
                    return Poll::Ready(request);
                }
                (EventKind::Contract(CmEvent::DeviceRemoved), id) if id == Some(self.id.raw()) => {
                    self.removed = true;
                }
                (other, _) => tracing::debug!(event = ?other, "connection manager event passed over"),
            }
        }
        Poll::Ready(Err(TransportError::DeviceRemoved))
    }
}

impl DeviceListener for VerbsListener {
    fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Box<dyn ConnectRequest>, TransportError>> {
        self.poll_connect_request(cx).map_ok(|request| Box::new(Request(request)) as Box<dyn ConnectRequest>)
    }

    fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    fn device(&self) -> DeviceKind {
        DeviceKind::Verbs
    }
}

/// Where to listen, with the choice by GID index resolved into address and device.
fn place(addr: SocketAddr, options: &DeviceOptions) -> Result<(SocketAddr, DeviceOptions), TransportError> {
    let mut options = options.clone();
    if let Some(source) = options.source.filter(|source| *source != addr.ip()) {
        let reason = format!("the source address {source} was chosen too: leave it out, or listen on it");
        let source = io::Error::new(io::ErrorKind::InvalidInput, reason);
        return Err(TransportError::Listen { addr, device: DeviceKind::Verbs, source });
    }
    let Some(index) = options.gid else { return Ok((addr, options)) };
    let gid = Sysfs::of_this_machine().gid(options.device.as_deref(), index)?;
    if !addr.ip().is_unspecified() {
        gid.must_stand_for(addr.ip())?;
    }
    let addr = gid.addr(addr.port());
    options.device = Some(gid.device);
    Ok((addr, options))
}

/// A connect request. Dropping it rejects it.
struct Request(cm::ConnectRequest);

impl ConnectRequest for Request {
    fn peer_addr(&self) -> SocketAddr {
        self.0.peer_addr()
    }

    fn accept(self: Box<Self>, options: &DeviceOptions) -> Result<Box<dyn DeviceConnection>, TransportError> {
        Ok(Box::new(VerbsConnection::of_request(self.0.adopt()?, options)?))
    }
}
