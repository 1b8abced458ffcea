//! The connections and listeners of the device contract, put together from their objects.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BufMut;
use tokio::io::unix::AsyncFd;
use valkey_rdma_proto::work::{Completion, ReceiveRequest, Region, RegionId, SendRequest};

use super::async_events::{AsyncEvent, AsyncEvents};
use super::cm::{self, CmId, RawCmId};
use super::event_channel::{EventChannel, poll_notice};
use super::failed;
use super::mr::{MemoryRegion, ProtectionDomain};
use super::qp::QueuePair;
use super::shared_cq::CqHandle;
use super::sys;
use super::sys::convert::{self, EventKind};
use super::sysfs::Sysfs;
use crate::device::{
    Access, CmEvent, ConnectRequest, DeviceConnection, DeviceFault, DeviceInfo, DeviceKind, DeviceListener,
    DeviceOptions, Interrupt, Limits, check_reads,
};
use crate::direct::DirectMemory;
use crate::error::TransportError;
use crate::send_memory::SendMemory;

/// A connection over kernel verbs.
///
/// The order of the fields is the order in which they are freed, and the only one that works: events are told apart
/// by the address of the queue pair, a queue pair uses its completion queue and its regions, these use the domain, and
/// all of them the device, which the identifier keeps open.
pub(super) struct VerbsConnection {
    events: AsyncEvents,
    queue_pair: QueuePair,
    completions: CqHandle,
    /// Indexed by [`RegionId`].
    regions: Vec<MemoryRegion>,
    /// Places in `regions` that the next ones get.
    deregistered: Vec<RegionId>,
    domain: ProtectionDomain,
    id: CmId,
    limits: Limits,
    device: DeviceInfo,
    retry_count: Option<u8>,
    /// Reads that were asked for, in either direction.
    wanted_reads: u8,
    /// Reads of this side that it has accepted itself. 0 on the side that connects.
    accepted_reads: u8,
    read_depth: u8,
}

impl VerbsConnection {
    /// As [`new`](Self::new), for an identifier that came with a request to connect.
    pub(super) fn of_request(id: CmId, options: &DeviceOptions) -> Result<Self, TransportError> {
        id.set_ack_timeout(options)?;
        Self::new(id, options)
    }

    /// Makes the objects of a connection whose identifier is bound to a device.
    ///
    /// If one of them cannot be made, those before it are freed in order, the identifier last; a request to
    /// connect is rejected by that.
    pub(super) fn new(id: CmId, options: &DeviceOptions) -> Result<Self, TransportError> {
        // SAFETY: the identifier is live.
        let port = unsafe { sys::query_port(id.device(), id.port()) }.map_err(failed("ibv_query_port"))?;
        // SAFETY: as above.
        let name = unsafe { sys::device_name(id.device()) };
        // SAFETY: as above.
        let most = unsafe { sys::query_device(id.device()) }.map_err(failed("ibv_query_device"))?;
        let options = &most.fit(&name, options)?;
        if !convert::port_is_up(port.state) {
            return Err(Sysfs::of_this_machine().down(name, id.port()));
        }
        let software = is_software(&name);
        let mtu = convert::mtu_bytes(port.active_mtu);
        let device = DeviceInfo { kind: DeviceKind::Verbs, name, mtu, software };

        // SAFETY: locals are dropped in reverse order, the parameter last; from the end of this function on, the
        // order of the fields holds. Either way the identifier outlives the domain.
        let domain = unsafe { ProtectionDomain::new(&id) }?;
        // SAFETY: as above, for the completion queue.
        let mut completions = unsafe { CqHandle::new(&id, options, &most) }?;
        // SAFETY: as above, for the queue pair: it goes first. The identifier is new, so it has no other; the
        // domain and the queue were made on its device.
        let queue_pair = unsafe { QueuePair::new(&id, &domain, completions.raw(), options) }?;
        completions.bind_qp(queue_pair.number());
        // SAFETY: as above, for the events: they go before the queue pair.
        let events = unsafe { AsyncEvents::new(id.device(), id.port(), &queue_pair, completions.raw()) }?;

        let granted = queue_pair.granted();
        // A device may round depths up. Use that only as far as the completion queue has room for everything,
        // since a completion too many would end the connection.
        let roomy =
            u64::from(granted.max_send_wr) + u64::from(granted.max_recv_wr) <= u64::from(completions.depth());
        let limits = Limits {
            send_depth: if roomy { granted.max_send_wr } else { options.send_depth },
            receive_depth: if roomy { granted.max_recv_wr } else { options.receive_depth },
            max_inline: granted.max_inline_data,
            max_message: port.max_msg_sz,
            cq_members: completions.members(),
        };
        tracing::debug!(device = device.name, mtu = device.mtu, ?limits, peer = %id.peer_addr(), "queue pair made");
        Ok(Self {
            events,
            queue_pair,
            completions,
            regions: Vec::new(),
            deregistered: Vec::new(),
            domain,
            id,
            limits,
            device,
            retry_count: options.retry_count,
            wanted_reads: options.read_depth,
            accepted_reads: 0,
            read_depth: 0,
        })
    }

    fn add(&mut self, region: MemoryRegion, len: u32) -> Region {
        let (addr, rkey) = (region.addr(), region.rkey());
        let id = match self.deregistered.pop() {
            Some(id) => {
                self.regions[id.0 as usize] = region;
                id
            }
            None => {
                self.regions.push(region);
                RegionId(u32::try_from(self.regions.len() - 1).expect("far fewer regions fit in memory"))
            }
        };
        Region { id, addr, rkey, len }
    }

    fn region(&self, region: RegionId) -> &MemoryRegion {
        &self.regions[region.0 as usize]
    }
}

/// Whether a device has no hardware of its own: the kernel then keeps it among its virtual devices. One that sysfs
/// does not show counts as hardware.
fn is_software(name: &str) -> bool {
    std::fs::canonicalize(Path::new("/sys/class/infiniband").join(name))
        .is_ok_and(|path| path.starts_with("/sys/devices/virtual"))
}

impl DeviceConnection for VerbsConnection {
    fn register(&mut self, len: u32, access: Access) -> Result<Region, TransportError> {
        if access.allows_read() && self.wanted_reads == 0 {
            return Err(TransportError::ReadsOff);
        }
        // SAFETY: the domain outlives the regions (field order).
        let region = unsafe { MemoryRegion::new(&self.domain, len, access) }?;
        Ok(self.add(region, len))
    }

    fn register_send_memory(&mut self, memory: &SendMemory) -> Result<Region, TransportError> {
        // SAFETY: the domain outlives the regions (field order).
        let region = unsafe { MemoryRegion::lent(&self.domain, memory) }?;
        Ok(self.add(region, memory.len()))
    }

    fn register_direct(&mut self, memory: &DirectMemory, access: Access) -> Result<Region, TransportError> {
        if access.allows_read() && self.wanted_reads == 0 {
            return Err(TransportError::ReadsOff);
        }
        // SAFETY: the domain outlives the regions (field order).
        let region = unsafe { MemoryRegion::direct(&self.domain, memory, access) }?;
        Ok(self.add(region, memory.sent().len()))
    }

    fn deregister(&mut self, region: RegionId) -> Option<SendMemory> {
        let kept = self.regions[region.0 as usize].deregister();
        self.deregistered.push(region);
        kept
    }

    fn write_local(&mut self, region: RegionId, range: Range<usize>, fill: &mut dyn FnMut(&mut [u8])) {
        self.regions[region.0 as usize].fill(range, fill);
    }

    fn copy_in(&mut self, region: RegionId, offset: usize, bytes: &[u8]) {
        self.regions[region.0 as usize].copy_in(offset, bytes);
    }

    fn read_local(&self, region: RegionId, range: Range<usize>, out: &mut dyn BufMut) {
        self.region(region).copy_out(range, out);
    }

    fn post_sends(&mut self, chain: &[SendRequest]) -> Result<(), TransportError> {
        check_reads(chain, || self.read_depth)?;
        self.queue_pair.post_sends(&self.regions, chain)
    }

    fn post_receives(&mut self, batch: &[ReceiveRequest]) -> Result<(), TransportError> {
        self.queue_pair.post_receives(&self.regions, batch)
    }

    fn poll(&mut self, out: &mut Vec<Completion>, limit: usize) -> Result<(), TransportError> {
        self.completions.poll(out, limit)
    }

    fn arm(&mut self) -> Result<(), TransportError> {
        self.completions.arm()
    }

    fn poll_completion_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.completions.poll_event(cx)
    }

    fn wait_completion_event(&mut self, interrupt: &Interrupt) -> Result<bool, TransportError> {
        self.completions.wait_event(interrupt)
    }

    fn establish(&mut self) -> Result<(), TransportError> {
        // SAFETY: the queue pair was made together with the connection.
        self.accepted_reads = unsafe { self.id.establish(self.retry_count, self.wanted_reads) }?;
        Ok(())
    }

    fn poll_cm_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CmEvent, TransportError>> {
        loop {
            if let Poll::Ready(event) = self.id.poll_event(cx)? {
                if event == CmEvent::Established {
                    self.queue_pair.shorten_receiver_not_ready();
                    if self.wanted_reads > 0 {
                        self.read_depth = self.queue_pair.read_depth()?.unwrap_or(self.accepted_reads);
                    }
                }
                return Poll::Ready(Ok(event));
            }
            let event = match ready!(self.events.poll(cx)) {
                AsyncEvent::Fault(fault) => {
                    if fault == DeviceFault::CompletionQueue {
                        self.completions.end();
                    }
                    Err(TransportError::Fault { device: self.device.name.clone(), fault })
                }
                AsyncEvent::PortDown => Ok(CmEvent::PortDown),
                AsyncEvent::PortUp => Ok(CmEvent::PortUp),
                AsyncEvent::Established => {
                    self.id.received_something();
                    continue;
                }
            };
            return Poll::Ready(event);
        }
    }

    fn check(&mut self) -> Result<(), TransportError> {
        if self.queue_pair.is_in_error()? {
            let device = self.device.name.clone();
            return Err(TransportError::Fault { device, fault: DeviceFault::QueuePair });
        }
        Ok(())
    }

    fn disconnect(&mut self) {
        self.id.end();
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn read_depth(&self) -> u8 {
        self.read_depth
    }

    fn local_addr(&self) -> SocketAddr {
        self.id.local_addr()
    }

    fn peer_addr(&self) -> SocketAddr {
        self.id.peer_addr()
    }

    fn device(&self) -> DeviceInfo {
        self.device.clone()
    }
}

impl Drop for VerbsConnection {
    fn drop(&mut self) {
        // While the queue pair is still there: the peer is told, and the device stops before anything is freed.
        self.id.end();
    }
}

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
        let refused = |source: io::Error| TransportError::Listen {
            addr,
            device: DeviceKind::Verbs,
            source: source.into(),
        };
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
        let source = io::Error::new(io::ErrorKind::InvalidInput, reason).into();
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

#[cfg(test)]
mod tests;
