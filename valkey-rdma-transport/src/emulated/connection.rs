//! The emulated [`DeviceConnection`]: one end of a link.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::BufMut;
use valkey_rdma_proto::work::{Completion, ReceiveRequest, Region, RegionId, SendRequest};

use super::adapter::fit;
use super::device::{FaultPlan, Link, named};
use super::direct::{DirectLink, End};
use super::directory::{self, DirectRequest, loopback_like, next_port};
use super::queue_pair::{Memory, QueuePair, QueuePairState};
use super::socket::{self, SocketLink, SocketRequest};
use super::{MAX_MESSAGE, refused};
use crate::device::report::REASON_CONSUMER;
use crate::device::{
    Access, CmEvent, DeviceConnection, DeviceInfo, DeviceKind, DeviceOptions, Limits, check_reads,
};
use crate::direct::DirectMemory;
use crate::error::{RejectReason, TransportError};
use crate::send_memory::SendMemory;

/// One end of a link.
#[derive(Debug)]
pub(super) struct EmulatedConnection {
    transport: LinkTransport,
    limits: Limits,
    local: SocketAddr,
    peer: SocketAddr,
    device: String,
    /// This end's regions, for access without the link's lock.
    memories: Vec<Memory>,
    /// Places there that the next ones get.
    deregistered: Vec<RegionId>,
    /// What keeps direct memory that is registered, as with an adapter.
    kept: Vec<(RegionId, SendMemory)>,
    phase: Phase,
    /// Whether reads were asked for.
    reads: bool,
}

/// How far the program has taken the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Active end, nothing asked.
    Idle,
    /// Passive end, not answered.
    Incoming,
    /// Asked or accepted.
    Active,
    /// Ended by this program.
    Closed,
}

/// The two links.
#[derive(Debug)]
enum LinkTransport {
    Direct(DirectLink, End),
    Socket(SocketLink),
}

impl LinkTransport {
    /// Runs `step` on this end's side, for what concerns no other side.
    fn side<R>(&self, step: impl FnOnce(&mut QueuePair) -> R) -> R {
        match self {
            LinkTransport::Direct(link, end) => link.with(|sides| step(sides.side(*end))),
            LinkTransport::Socket(link) => link.side(step),
        }
    }
}

impl EmulatedConnection {
    /// An end that will ask the listener at `peer`.
    pub(super) async fn open(peer: SocketAddr, options: &DeviceOptions) -> Result<Self, TransportError> {
        let options = &fit(options)?;
        let plan = named(options.device.as_deref())?;
        // What the unspecified address stands for, as in TCP.
        let to = specific(peer);
        let directory = match &plan.link {
            Link::Any if !directory::listens(to) => None,
            Link::Any | Link::InProcess => {
                let link = DirectLink::new(
                    QueuePair::new(options, plan.clone()),
                    // Until the passive end brings its own.
                    QueuePair::new(options, plan.clone()),
                );
                plan.watch(link.downgrade());
                let local = SocketAddr::new(to.ip(), next_port());
                let transport = LinkTransport::Direct(link, End::Active);
                return Ok(Self::new(transport, Phase::Idle, "inprocess", options, local, peer));
            }
            Link::Tcp => None,
            Link::Unix(directory) => Some(directory.as_path()),
        };
        let side = QueuePair::new(options, plan.clone());
        let (link, local) = socket::connect(side, to, directory, options.address_timeout).await?;
        Ok(Self::new(LinkTransport::Socket(link), Phase::Idle, "tcp", options, local, peer))
    }

    /// The end at a listener, for a request from this process.
    pub(super) fn accept_direct(
        request: DirectRequest,
        local: SocketAddr,
        options: &DeviceOptions,
        plan: Arc<FaultPlan>,
    ) -> Result<Self, TransportError> {
        let options = &fit(options)?;
        let peer = request.from;
        let link = request.take();
        plan.watch(link.downgrade());
        link.with(|sides| *sides.side(End::Passive) = QueuePair::new(options, plan.clone()));
        let transport = LinkTransport::Direct(link, End::Passive);
        Ok(Self::new(transport, Phase::Incoming, "inprocess", options, local, peer))
    }

    /// The end at a listener, for a request that came over a socket.
    pub(super) fn accept_socket(
        request: SocketRequest,
        options: &DeviceOptions,
        plan: Arc<FaultPlan>,
    ) -> Result<Self, TransportError> {
        let options = &fit(options)?;
        let (local, peer) = (request.to, request.from);
        let link = request.take(QueuePair::new(options, plan.clone()));
        Ok(Self::new(LinkTransport::Socket(link), Phase::Incoming, "tcp", options, local, peer))
    }

    fn new(
        transport: LinkTransport,
        phase: Phase,
        taken: &str,
        options: &DeviceOptions,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Self {
        let limits = Limits {
            send_depth: options.send_depth,
            receive_depth: options.receive_depth,
            max_inline: options.max_inline,
            max_message: MAX_MESSAGE,
            cq_members: 1,
        };
        // The name by which the same can be had again; of a device that was not named, the way that was taken.
        let device = options.device.as_deref().unwrap_or(taken).to_owned();
        Self {
            transport,
            limits,
            local,
            peer,
            device,
            memories: Vec::new(),
            deregistered: Vec::new(),
            kept: Vec::new(),
            phase,
            reads: options.read_depth > 0,
        }
    }

    /// Adds a region of `len` bytes.
    fn add(&mut self, len: u32, memory: impl FnOnce(Region) -> Memory) -> Result<Region, TransportError> {
        if self.transport.side(|side| side.plan.refuses_memory()) {
            let source = io::ErrorKind::OutOfMemory.into();
            return Err(TransportError::Memory { bytes: len.into(), limit: None, source });
        }
        let number = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
        // Addresses are made up, far apart, and never zero: nothing but the peer's requests uses them.
        let addr = u64::from(number) << 32;
        let id = self.deregistered.pop().unwrap_or(RegionId(self.memories.len() as u32));
        let region = Region { id, addr, rkey: number, len };
        self.place(id, &memory(region));
        Ok(region)
    }

    /// What this region is from now on, for both ends.
    fn place(&mut self, id: RegionId, memory: &Memory) {
        let place = |memories: &mut Vec<Memory>| match memories.get_mut(id.0 as usize) {
            Some(place) => *place = memory.clone(),
            None => memories.push(memory.clone()),
        };
        place(&mut self.memories);
        self.transport.side(|side| place(&mut side.memories));
    }

    fn memory(&self, region: RegionId) -> &Memory {
        self.memories.get(region.0 as usize).expect("a region of this connection")
    }
}

impl DeviceConnection for EmulatedConnection {
    fn register(&mut self, len: u32, access: Access) -> Result<Region, TransportError> {
        if access.allows_read() && !self.reads {
            return Err(TransportError::ReadsOff);
        }
        self.add(len, |region| Memory::new(region, access))
    }

    fn register_send_memory(&mut self, memory: &SendMemory) -> Result<Region, TransportError> {
        self.add(memory.len(), |region| Memory::lent(region, memory.clone()))
    }

    fn register_direct(&mut self, memory: &DirectMemory, access: Access) -> Result<Region, TransportError> {
        if access.allows_read() && !self.reads {
            return Err(TransportError::ReadsOff);
        }
        let region =
            self.add(memory.sent().len(), |region| Memory::direct(region, access, memory.downgrade()))?;
        self.kept.push((region.id, memory.sent().clone()));
        Ok(region)
    }

    fn deregister(&mut self, region: RegionId) -> Option<SendMemory> {
        self.place(region, &Memory::gone(region));
        self.deregistered.push(region);
        let kept = self.kept.iter().position(|(kept, _)| *kept == region)?;
        Some(self.kept.swap_remove(kept).1)
    }

    fn write_local(&mut self, region: RegionId, range: Range<usize>, fill: &mut dyn FnMut(&mut [u8])) {
        let memory = self.memory(region);
        assert!(!memory.access.allows_write(), "a peer may write this memory: copy into it");
        fill(&mut memory.lock()[range]);
    }

    fn copy_in(&mut self, region: RegionId, offset: usize, bytes: &[u8]) {
        self.memory(region).lock()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn read_local(&self, region: RegionId, range: Range<usize>, out: &mut dyn BufMut) {
        assert!(self.memory(region).copy_to(range, out), "lent bytes are held while they are used");
    }

    fn post_sends(&mut self, chain: &[SendRequest]) -> Result<(), TransportError> {
        check_reads(chain, || self.read_depth())?;
        match &self.transport {
            LinkTransport::Direct(link, end) => link.with(|sides| sides.post_sends(*end, chain)),
            LinkTransport::Socket(link) => link.ring(|session| session.post_sends(chain)),
        }
    }

    fn post_receives(&mut self, batch: &[ReceiveRequest]) -> Result<(), TransportError> {
        match &self.transport {
            LinkTransport::Direct(link, end) => link.with(|sides| sides.post_receives(*end, batch)),
            LinkTransport::Socket(link) => link.post_receives(batch),
        }
    }

    fn poll(&mut self, out: &mut Vec<Completion>, limit: usize) -> Result<(), TransportError> {
        if self.transport.side(|side| side.poll(out, limit)) {
            return Ok(());
        }
        let source = io::Error::other("the completion queue was overrun").into();
        Err(TransportError::Device { call: "ibv_poll_cq", source })
    }

    fn arm(&mut self) -> Result<(), TransportError> {
        self.transport.side(QueuePair::arm);
        Ok(())
    }

    fn poll_completion_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.transport.side(|side| side.poll_completion_event(cx)).map(Ok)
    }

    fn establish(&mut self) -> Result<(), TransportError> {
        if !matches!(self.phase, Phase::Idle | Phase::Incoming) {
            return Err(refused("rdma_connect", io::ErrorKind::AlreadyExists));
        }
        if self.phase == Phase::Idle
            && let Some(RejectReason(reason)) = self.transport.side(|side| side.plan.rejects_request())
        {
            self.phase = Phase::Closed;
            self.transport.side(|side| side.push_cm_event(CmEvent::Rejected { reason }));
            return Ok(());
        }
        self.phase = Phase::Active;
        match &self.transport {
            LinkTransport::Direct(link, End::Active) => {
                directory::request(specific(self.peer), link.clone(), self.local);
            }
            LinkTransport::Direct(link, End::Passive) => link.with(|sides| sides.connect()),
            LinkTransport::Socket(link) => link.ring(|session| session.establish()),
        }
        Ok(())
    }

    fn poll_cm_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CmEvent, TransportError>> {
        self.transport.side(|side| side.poll_cm_event(cx)).map(Ok)
    }

    fn disconnect(&mut self) {
        let phase = std::mem::replace(&mut self.phase, Phase::Closed);
        match &self.transport {
            _ if phase == Phase::Closed => {}
            LinkTransport::Direct(link, _) if phase == Phase::Incoming => link.with(|sides| {
                sides.side(End::Passive).fail();
                sides.reject(REASON_CONSUMER);
            }),
            LinkTransport::Direct(link, end) => link.with(|sides| sides.disconnect(*end)),
            LinkTransport::Socket(link) => link.ring(|session| session.disconnect()),
        }
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn read_depth(&self) -> u8 {
        self.transport.side(|side| if side.state == QueuePairState::Init { 0 } else { side.sends.read_depth })
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn device(&self) -> DeviceInfo {
        DeviceInfo { kind: DeviceKind::Emulated, name: self.device.clone(), mtu: None, software: true }
    }
}

impl Drop for EmulatedConnection {
    fn drop(&mut self) {
        self.disconnect();
        self.transport.side(QueuePair::release);
    }
}

/// The address that an unspecified one stands for.
fn specific(addr: SocketAddr) -> SocketAddr {
    let mut specific = addr;
    if addr.ip().is_unspecified() {
        specific.set_ip(loopback_like(addr.ip()));
    }
    specific
}

/// Keys count up over the process, so that a stale one never fits.
static NEXT_KEY: AtomicU32 = AtomicU32::new(1);

#[cfg(test)]
mod tests;
