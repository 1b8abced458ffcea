//! The emulated [`DeviceConnection`]: one end of a link.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::BufMut;
use valkey_rdma_proto::work::{Completion, ReceiveRequest, Region, RegionId, SendRequest};

use super::device::{Conditions, Link};
use super::direct::{DirectLink, End};
use super::directory::{self, DirectRequest};
use super::memory::Memory;
use super::side::Side;
use super::socket::{self, SocketLink, SocketRequest};
use super::{MAX_MESSAGE, REASON_CONSUMER, refused};
use crate::buffer_pool::BufferPool;
use crate::device::{
    Access, CmEvent, DeviceConnection, DeviceInfo, DeviceKind, DeviceLimits, DeviceOptions, Limits,
    check_limits,
};
use crate::error::TransportError;

/// One end of a link.
#[derive(Debug)]
pub(super) struct EmulatedEndpoint {
    carrier: Carrier,
    limits: Limits,
    local: SocketAddr,
    peer: SocketAddr,
    device: String,
    /// This end's regions, for access without the link's lock.
    memories: Vec<Memory>,
    phase: Phase,
}

/// How far the program has taken the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Active end, nothing asked.
    Fresh,
    /// Passive end, not answered.
    Requested,
    /// Asked or accepted.
    Engaged,
    /// Ended by this program.
    Over,
}

/// The two links.
#[derive(Debug)]
enum Carrier {
    Direct(DirectLink, End),
    Socket(SocketLink),
}

impl Carrier {
    /// Runs `step` on this end's side, for what concerns nobody else.
    fn side<R>(&self, step: impl FnOnce(&mut Side) -> R) -> R {
        match self {
            Carrier::Direct(link, end) => link.with(|sides| step(sides.side(*end))),
            Carrier::Socket(link) => link.side(step),
        }
    }
}

impl EmulatedEndpoint {
    /// An end that will ask the listener at `peer`.
    pub(super) async fn open(peer: SocketAddr, options: &DeviceOptions) -> Result<Self, TransportError> {
        check_limits(NAME, options, &MOST)?;
        let conditions = Conditions::named(options.device.as_deref())?;
        // What the unspecified address stands for, as in TCP.
        let to = specific(peer);
        let directory = match &conditions.link {
            Link::Any if !directory::listens(to) => None,
            Link::Any | Link::InProcess => {
                let link = DirectLink::new(
                    Side::new(options, conditions.clone()),
                    // Until the passive end brings its own.
                    Side::new(options, conditions.clone()),
                );
                conditions.watch_direct(&link);
                let local = SocketAddr::new(to.ip(), next_port());
                let carrier = Carrier::Direct(link, End::Active);
                return Ok(Self::new(carrier, Phase::Fresh, "inprocess", options, local, peer));
            }
            Link::Tcp => None,
            Link::Unix(directory) => Some(directory.as_path()),
        };
        let side = Side::new(options, conditions.clone());
        let (link, local) = socket::connect(side, to, directory, options.address_timeout).await?;
        Ok(Self::new(Carrier::Socket(link), Phase::Fresh, "tcp", options, local, peer))
    }

    /// The end at a listener, for a request from this process.
    pub(super) fn accept_direct(
        request: DirectRequest,
        local: SocketAddr,
        options: &DeviceOptions,
        conditions: Arc<Conditions>,
    ) -> Result<Self, TransportError> {
        check_limits(NAME, options, &MOST)?;
        let peer = request.from;
        let link = request.take();
        conditions.watch_direct(&link);
        link.with(|sides| *sides.side(End::Passive) = Side::new(options, conditions.clone()));
        let carrier = Carrier::Direct(link, End::Passive);
        Ok(Self::new(carrier, Phase::Requested, "inprocess", options, local, peer))
    }

    /// The end at a listener, for a request that came over a socket.
    pub(super) fn accept_socket(
        request: SocketRequest,
        options: &DeviceOptions,
        conditions: Arc<Conditions>,
    ) -> Result<Self, TransportError> {
        check_limits(NAME, options, &MOST)?;
        let (local, peer) = (request.to, request.from);
        let link = request.take(Side::new(options, conditions.clone()));
        Ok(Self::new(Carrier::Socket(link), Phase::Requested, "tcp", options, local, peer))
    }

    fn new(
        carrier: Carrier,
        phase: Phase,
        taken: &str,
        options: &DeviceOptions,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Self {
        let limits = Limits {
            send_depth: options.send_depth,
            receive_depth: options.receive_depth,
            max_inline: options.max_inline.min(MAX_INLINE),
            max_message: MAX_MESSAGE,
        };
        // The name by which the same can be had again; of a device that was not named, the way that was taken.
        let device = options.device.as_deref().unwrap_or(taken).to_owned();
        Self { carrier, limits, local, peer, device, memories: Vec::new(), phase }
    }

    /// Adds a region of so many bytes.
    fn add(&mut self, len: u32, memory: impl FnOnce(Region) -> Memory) -> Result<Region, TransportError> {
        if self.carrier.side(|side| side.conditions.refuses_memory()) {
            let source = io::ErrorKind::OutOfMemory.into();
            return Err(TransportError::Memory { bytes: len.into(), limit: None, source });
        }
        let number = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
        // Addresses are made up, far apart, and never zero: nothing but the peer's requests uses them.
        let addr = u64::from(number) << 32;
        let region = Region { id: RegionId(self.memories.len() as u32), addr, rkey: number, len };
        let memory = memory(region);
        self.memories.push(memory.clone());
        self.carrier.side(|side| side.memories.push(memory));
        Ok(region)
    }

    fn memory(&self, region: RegionId) -> &Memory {
        self.memories.get(region.0 as usize).expect("a region of this endpoint")
    }
}

impl DeviceConnection for EmulatedEndpoint {
    fn register(&mut self, len: u32, access: Access) -> Result<Region, TransportError> {
        self.add(len, |region| Memory::new(region, access))
    }

    fn register_pool(&mut self, pool: &BufferPool) -> Result<Region, TransportError> {
        self.add(pool.inner().len(), |region| Memory::lent(region, pool.clone()))
    }

    fn write_local(&mut self, region: RegionId, range: Range<usize>, fill: &mut dyn FnMut(&mut [u8])) {
        fill(&mut self.memory(region).lock()[range]);
    }

    fn read_local(&self, region: RegionId, range: Range<usize>, out: &mut dyn BufMut) {
        assert!(self.memory(region).copy_to(range, out), "a pool's bytes are frozen while they are used");
    }

    fn post_sends(&mut self, chain: &[SendRequest]) -> Result<(), TransportError> {
        match &self.carrier {
            Carrier::Direct(link, end) => link.with(|sides| sides.post_sends(*end, chain)),
            Carrier::Socket(link) => link.ring(|session| session.post_sends(chain)),
        }
    }

    fn post_receives(&mut self, batch: &[ReceiveRequest]) -> Result<(), TransportError> {
        match &self.carrier {
            Carrier::Direct(link, end) => link.with(|sides| sides.post_receives(*end, batch)),
            Carrier::Socket(link) => link.post_receives(batch),
        }
    }

    fn poll(&mut self, out: &mut Vec<Completion>, limit: usize) -> Result<(), TransportError> {
        if self.carrier.side(|side| side.poll(out, limit)) {
            return Ok(());
        }
        let source = io::Error::other("the completion queue was overrun");
        Err(TransportError::Device { call: "ibv_poll_cq", source })
    }

    fn arm(&mut self) -> Result<(), TransportError> {
        self.carrier.side(Side::arm);
        Ok(())
    }

    fn poll_completion_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.carrier.side(|side| side.poll_completion_event(cx)).map(Ok)
    }

    fn establish(&mut self) -> Result<(), TransportError> {
        if !matches!(self.phase, Phase::Fresh | Phase::Requested) {
            return Err(refused("rdma_connect", io::ErrorKind::AlreadyExists));
        }
        self.phase = Phase::Engaged;
        match &self.carrier {
            Carrier::Direct(link, End::Active) => {
                directory::request(specific(self.peer), link.clone(), self.local);
            }
            Carrier::Direct(link, End::Passive) => link.with(|sides| sides.connect()),
            Carrier::Socket(link) => link.ring(|session| session.establish()),
        }
        Ok(())
    }

    fn poll_cm_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CmEvent, TransportError>> {
        self.carrier.side(|side| side.poll_cm_event(cx)).map(Ok)
    }

    fn disconnect(&mut self) {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        match &self.carrier {
            _ if phase == Phase::Over => {}
            Carrier::Direct(link, _) if phase == Phase::Requested => link.with(|sides| {
                sides.side(End::Passive).fail();
                sides.reject(REASON_CONSUMER);
            }),
            Carrier::Direct(link, end) => link.with(|sides| sides.disconnect(*end)),
            Carrier::Socket(link) => link.ring(|session| session.disconnect()),
        }
    }

    fn limits(&self) -> Limits {
        self.limits
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

impl Drop for EmulatedEndpoint {
    fn drop(&mut self) {
        self.disconnect();
        self.carrier.side(Side::release);
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

/// The loopback address of the same family.
pub(super) fn loopback_like(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

/// A port of the dynamic range, for an end or a listener that has no socket's.
pub(super) fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    FIRST_PORT + NEXT.fetch_add(1, Ordering::Relaxed) % DYNAMIC_PORTS
}

/// Where the dynamic range begins.
const FIRST_PORT: u16 = 49_152;

/// How many ports it has. It divides the range of a counter that wraps, so that none comes up too early.
pub(super) const DYNAMIC_PORTS: u16 = 1 << 14;

/// Keys count up over the process, so that a stale one never fits.
static NEXT_KEY: AtomicU32 = AtomicU32::new(1);

/// For what the device cannot.
const NAME: &str = "emulated";

/// Its queues take memory as they fill, so more than any adapter has does no harm.
const MOST: DeviceLimits =
    DeviceLimits { queue_depth: 1 << 18, completion_depth: 1 << 19, completion_vectors: 1 };

/// As common adapters, near enough.
const MAX_INLINE: u32 = 1024;

#[cfg(test)]
mod tests;
