//! Identifiers of the connection manager. Each names one connection or listener.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;

use super::event_channel::{EventChannel, poll_notice};
use super::sys::convert::{self, EventKind};
use super::sys::{self, ReadDepths, ibv_context, rdma_cm_id};
use super::sysfs::Sysfs;
use super::{failed, log_teardown};
use crate::address;
use crate::device::{CmEvent, DeviceOptions};
use crate::error::TransportError;

/// An identifier, and the channel that it needs until it is destroyed.
pub(super) struct RawCmId {
    raw: NonNull<rdma_cm_id>,
    channel: Arc<EventChannel>,
}

impl RawCmId {
    pub(super) fn new(channel: Arc<EventChannel>) -> Result<Self, TransportError> {
        // SAFETY: the channel is live, and the identifier holds an `Arc` of it.
        let raw = unsafe { sys::create_id(channel.raw()) }.map_err(failed("rdma_create_id"))?;
        Ok(Self { raw, channel })
    }

    pub(super) fn raw(&self) -> NonNull<rdma_cm_id> {
        self.raw
    }

    /// Sets the acknowledgement timeout, if one was chosen. Call it before the route is resolved or a request is accepted.
    pub(super) fn set_ack_timeout(&self, options: &DeviceOptions) -> Result<(), TransportError> {
        let Some(timeout) = options.ack_timeout else { return Ok(()) };
        // SAFETY: the identifier is live.
        unsafe { sys::set_ack_timeout(self.raw, convert::ack_timeout_code(timeout)) }
            .map_err(failed("rdma_set_option"))
    }

    /// Fails if it is bound to another device than the one asked for.
    pub(super) fn check_device(&self, wanted: Option<&str>, peer: SocketAddr) -> Result<(), TransportError> {
        // SAFETY: the identifier is live, and its device with it.
        let found = unsafe { sys::id_device(self.raw).map(|device| sys::device_name(device)) };
        match (wanted, found) {
            (Some(wanted), Some(found)) if wanted != found => {
                Err(TransportError::WrongDevice { peer, wanted: wanted.to_owned(), found })
            }
            _ => Ok(()),
        }
    }
}

impl Drop for RawCmId {
    fn drop(&mut self) {
        // SAFETY: made in `new` or by a connect request, destroyed here only. Its queue pair went before (field
        // order of the connection), its channel goes after.
        log_teardown("rdma_destroy_id", unsafe { sys::destroy_id(self.raw) });
    }
}

// SAFETY: the pointer is this value's alone, and librdmacm ties no object to a thread.
unsafe impl Send for RawCmId {}

/// The state of a connection, which decides how to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CmState {
    /// Active side, nothing sent: the peer knows nothing of it.
    Idle,
    /// Passive side, not answered: rejected at the end.
    Incoming {
        /// The depths that the peer asks for.
        asked: ReadDepths,
    },
    /// Connect request or acceptance sent: disconnected at the end.
    Active,
    /// Ended by either side.
    Closed,
}

/// One connection's identifier, with a separate event channel: no connection can delay another one or a listener.
pub(super) struct CmId {
    id: RawCmId,
    state: CmState,
    events: AsyncFd<Arc<EventChannel>>,
    /// Of the device it is bound to, which stays open as long as the identifier lives.
    device: NonNull<ibv_context>,
    local: SocketAddr,
    peer: SocketAddr,
}

impl CmId {
    /// Makes an identifier with address and route to `peer` resolved.
    ///
    /// Cancel safety: dropping the future frees everything it made.
    pub(super) async fn resolve(peer: SocketAddr, options: &DeviceOptions) -> Result<Self, TransportError> {
        let (from, device) = source(options, peer)?;
        let channel = EventChannel::new()?;
        let mut id = RawCmId::new(Arc::clone(&channel))?;
        let events = channel.watch()?;
        let unresolved = |source: io::Error| match (address::check_interface(peer), from) {
            (Err(error), None) => TransportError::Address(error),
            (_, Some(from)) => TransportError::Source { from: from.ip(), peer, source: source.into() },
            (_, None) => TransportError::Resolve { peer, source: source.into() },
        };

        let timeout_ms = convert::timeout_ms(options.address_timeout);
        // SAFETY: the identifier is live.
        unsafe { sys::resolve_addr(id.raw, from, peer, timeout_ms) }.map_err(unresolved)?;
        resolved(&mut id, &events, EventKind::AddressResolved, unresolved).await?;
        id.check_device(device.as_deref(), peer)?;
        id.set_ack_timeout(options)?;
        let timeout_ms = convert::timeout_ms(options.route_timeout);
        // SAFETY: the identifier is live, and bound, as the event said.
        unsafe { sys::resolve_route(id.raw, timeout_ms) }.map_err(unresolved)?;
        resolved(&mut id, &events, EventKind::RouteResolved, unresolved).await?;
        Self::bound(id, events, CmState::Idle)
    }

    fn bound(
        id: RawCmId,
        events: AsyncFd<Arc<EventChannel>>,
        state: CmState,
    ) -> Result<Self, TransportError> {
        // SAFETY: the identifier is live.
        let device = unsafe { sys::id_device(id.raw) }.ok_or(TransportError::NoDevice)?;
        // SAFETY: as above.
        let local = unsafe { sys::local_addr(id.raw) }.map_err(failed("rdma_get_local_addr"))?;
        // SAFETY: as above.
        let peer = unsafe { sys::peer_addr(id.raw) }.map_err(failed("rdma_get_peer_addr"))?;
        Ok(Self { id, state, events, device, local, peer })
    }

    pub(super) fn raw(&self) -> NonNull<rdma_cm_id> {
        self.id.raw
    }

    /// The device it is bound to. Live as long as the identifier.
    pub(super) fn device(&self) -> NonNull<ibv_context> {
        self.device
    }

    /// The device's port it is bound to.
    pub(super) fn port(&self) -> u8 {
        // SAFETY: the identifier is live.
        unsafe { sys::id_port(self.id.raw) }
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    pub(super) fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// As [`RawCmId::set_ack_timeout`].
    pub(super) fn set_ack_timeout(&self, options: &DeviceOptions) -> Result<(), TransportError> {
        self.id.set_ack_timeout(options)
    }

    /// Sends the connect request, with its retry count, or accepts the peer's request. Returns how many READs of this side may be in
    /// flight, or 0 if the peer's answer decides that.
    ///
    /// # Safety
    /// The identifier has its queue pair.
    pub(super) unsafe fn establish(
        &mut self,
        retry_count: Option<u8>,
        read_depth: u8,
    ) -> Result<u8, TransportError> {
        let mut reads = ReadDepths::wish(read_depth);
        match self.state {
            CmState::Idle => {
                // SAFETY: live, with its queue pair by the contract.
                unsafe { sys::connect(self.id.raw, retry_count, reads) }.map_err(failed("rdma_connect"))?;
                reads.outgoing = 0;
            }
            CmState::Incoming { asked } => {
                // A peer that sends no read depths gets the default answer.
                if read_depth > 0 {
                    reads = reads.min(asked);
                }
                // SAFETY: live, from a connect request, with its queue pair by the contract.
                unsafe { sys::accept(self.id.raw, reads) }.map_err(failed("rdma_accept"))?;
            }
            CmState::Active | CmState::Closed => {
                return Err(failed("rdma_connect")(io::ErrorKind::AlreadyExists.into()));
            }
        }
        self.state = CmState::Active;
        Ok(reads.outgoing)
    }

    /// Takes one event that the device contract knows, passing over the others.
    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CmEvent, TransportError>> {
        loop {
            // SAFETY: the channel has this identifier only, and `&mut self` keeps other threads away.
            let notice = ready!(unsafe { poll_notice(&self.events, cx) })?;
            let event = match notice.kind {
                EventKind::Contract(event) if notice.id == Some(self.id.raw) => event,
                other => {
                    tracing::debug!(event = ?other, "connection manager event passed over");
                    continue;
                }
            };
            if let CmEvent::Rejected { .. } | CmEvent::Unreachable { .. } | CmEvent::ConnectError { .. } =
                event
            {
                self.state = CmState::Closed;
            }
            return Poll::Ready(Ok(event));
        }
    }

    /// Call it when the queue pair has received something before the peer's ready-to-use message: the peer regards the connection
    /// as established. If that message was lost, the connection manager then reports the event all the same.
    pub(super) fn received_something(&mut self) {
        // SAFETY: the identifier is live.
        if let Err(error) = unsafe { sys::notify_established(self.id.raw) } {
            // Usual: the message arrived after all.
            tracing::debug!(%error, "rdma_notify");
        }
    }

    /// Ends the connection in the way that fits its state. Repeated calls do nothing.
    pub(super) fn end(&mut self) {
        let (call, outcome) = match std::mem::replace(&mut self.state, CmState::Closed) {
            CmState::Idle | CmState::Closed => return,
            // SAFETY: the identifier is live.
            CmState::Incoming { .. } => ("rdma_reject", unsafe { sys::reject(self.id.raw) }),
            // SAFETY: the identifier is live and bound to a device.
            CmState::Active => ("rdma_disconnect", unsafe { sys::disconnect(self.id.raw) }),
        };
        if let Err(error) = outcome {
            // Usual when the peer was faster, or never answered.
            tracing::debug!(call, %error, peer = %self.peer, "the peer was not notified of the end");
        }
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        self.end();
    }
}

// SAFETY: the device pointer is only ever handed to libibverbs, which ties no object to a thread; the identifier
// that keeps the device open moves along with it.
unsafe impl Send for CmId {}

/// Where to connect from, and over which device: as asked for, by address or by GID index.
fn source(
    options: &DeviceOptions,
    peer: SocketAddr,
) -> Result<(Option<SocketAddr>, Option<String>), TransportError> {
    let device = options.device.clone();
    let Some(index) = options.gid else {
        return Ok((options.source.map(|ip| address::source_towards(ip, peer)), device));
    };
    let gid = Sysfs::of_this_machine().gid(device.as_deref(), index)?;
    options.source.map_or(Ok(()), |wanted| gid.must_stand_for(wanted))?;
    Ok((Some(gid.addr(0)), Some(gid.device)))
}

/// Waits for one step of resolution.
async fn resolved(
    id: &mut RawCmId,
    events: &AsyncFd<Arc<EventChannel>>,
    step: EventKind,
    unresolved: impl FnOnce(io::Error) -> TransportError,
) -> Result<(), TransportError> {
    loop {
        // SAFETY: the channel has this identifier only, and the future that borrows it is polled by one thread
        // at a time.
        let notice = poll_fn(|cx| unsafe { poll_notice(events, cx) }).await?;
        match notice.kind {
            _ if notice.id != Some(id.raw) => {}
            kind if kind == step => return Ok(()),
            EventKind::ResolveFailed(errno) => {
                return Err(unresolved(io::Error::from_raw_os_error(errno)));
            }
            EventKind::Contract(CmEvent::DeviceRemoved) => return Err(TransportError::DeviceRemoved),
            other => tracing::debug!(event = ?other, "connection manager event passed over"),
        }
    }
}

/// A connect request that has not been answered. It needs no event channel and no descriptor, only the kernel's record of it.
/// Dropping it rejects the request.
pub(super) struct ConnectRequest {
    /// `None` once it has been adopted.
    id: Option<RawCmId>,
    peer: SocketAddr,
    reads: ReadDepths,
}

impl ConnectRequest {
    /// # Errors
    /// [`TransportError::WrongDevice`] if the request came over another device than `wanted`; it was rejected.
    ///
    /// # Safety
    /// `id` came with a connect request just taken from `channel`, and nothing else holds it.
    pub(super) unsafe fn new(
        id: NonNull<rdma_cm_id>,
        channel: Arc<EventChannel>,
        wanted: Option<&str>,
        reads: ReadDepths,
    ) -> Result<Self, TransportError> {
        let unknown = SocketAddr::from(([0; 4], 0));
        let mut request = Self { id: Some(RawCmId { raw: id, channel }), peer: unknown, reads };
        // SAFETY: live, by the contract.
        request.peer = unsafe { sys::peer_addr(id) }.map_err(failed("rdma_get_peer_addr"))?;
        request.id.iter().try_for_each(|id| id.check_device(wanted, request.peer))?;
        Ok(request)
    }

    pub(super) fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Gives the request the event channel of a connection.
    pub(super) fn adopt(mut self) -> Result<CmId, TransportError> {
        let channel = EventChannel::new()?;
        let id = self.id.as_mut().expect("taken only below, by value");
        // SAFETY: both live. The library waits for the acknowledgement of every event taken for the identifier, which
        // `poll_notice` gives before it returns, also where the listener runs on another thread. The identifier gets
        // its share of the channel in the next line.
        unsafe { sys::migrate_id(id.raw, channel.raw()) }.map_err(failed("rdma_migrate_id"))?;
        id.channel = Arc::clone(&channel);
        // Watching starts after the migration, which moves the events that came since the request without notifying the
        // new channel's readers. It begins with a look at the channel, so it finds them.
        let events = channel.watch()?;
        let id = self.id.take().expect("present until here");
        CmId::bound(id, events, CmState::Incoming { asked: self.reads })
    }
}

impl Drop for ConnectRequest {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            // SAFETY: the identifier is live, and its request unanswered.
            if let Err(error) = unsafe { sys::reject(id.raw) } {
                tracing::debug!(%error, "a connect request could not be rejected");
            }
        }
    }
}
