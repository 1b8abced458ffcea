//! The emulated [`Endpoint`]: one end of a [`Link`].

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::BufMut;
use valkey_rdma_proto::work::{Completion, ReceiveRequest, Region, RegionId, SendRequest};

use super::fabric;
use super::link::{End, Link};
use super::memory::Memory;
use super::side::{Side, Signal};
use crate::device::{Access, CmEvent, DeviceInfo, DeviceKind, Endpoint, EndpointOptions, Limits};
use crate::error::TransportError;

/// One end of a link.
#[derive(Debug)]
pub(super) struct EmulatedEndpoint {
    link: Link,
    end: End,
    limits: Limits,
    local: SocketAddr,
    peer: SocketAddr,
    /// This end's regions, for access without the link's lock.
    memories: Vec<Memory>,
    established: bool,
}

impl EmulatedEndpoint {
    /// An end that will ask the listener at `peer`.
    pub(super) fn active(peer: SocketAddr, options: &EndpointOptions) -> Self {
        let host = match peer.ip() {
            ip if ip.is_unspecified() => loopback_like(ip),
            ip => ip,
        };
        Self::new(Link::new(options), End::Active, options, SocketAddr::new(host, next_port()), peer)
    }

    /// The end at a listener, for a request that came over `link`.
    pub(super) fn passive(
        link: Link,
        options: &EndpointOptions,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Self {
        link.with(|sides| *sides.side(End::Passive) = Side::new(options));
        Self::new(link, End::Passive, options, local, peer)
    }

    fn new(link: Link, end: End, options: &EndpointOptions, local: SocketAddr, peer: SocketAddr) -> Self {
        let limits = Limits {
            send_depth: options.send_depth,
            receive_depth: options.receive_depth,
            max_inline: options.max_inline,
            max_message: 1 << 30,
        };
        Self { link, end, limits, local, peer, memories: Vec::new(), established: false }
    }

    fn memory(&self, region: RegionId) -> &Memory {
        self.memories.get(region.0 as usize).expect("a region of this endpoint")
    }
}

impl Endpoint for EmulatedEndpoint {
    fn register(&mut self, len: u32, access: Access) -> Result<Region, TransportError> {
        let number = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
        // Addresses are made up, far apart, and never zero: nothing but the peer's requests uses them.
        let addr = u64::from(number) << 32;
        let region = Region { id: RegionId(self.memories.len() as u32), addr, rkey: number, len };
        let memory = Memory::new(region, access);
        self.memories.push(memory.clone());
        self.link.with(|sides| sides.side(self.end).memories.push(memory));
        Ok(region)
    }

    fn fill(&mut self, region: RegionId, range: Range<usize>, fill: &mut dyn FnMut(&mut [u8])) {
        fill(&mut self.memory(region).lock()[range]);
    }

    fn copy_out(&self, region: RegionId, range: Range<usize>, out: &mut dyn BufMut) {
        out.put_slice(&self.memory(region).lock()[range]);
    }

    fn post_sends(&mut self, chain: &[SendRequest]) -> Result<(), TransportError> {
        self.link.with(|sides| sides.post_sends(self.end, chain))
    }

    fn post_receives(&mut self, batch: &[ReceiveRequest]) -> Result<(), TransportError> {
        self.link.with(|sides| sides.post_receives(self.end, batch))
    }

    fn poll(&mut self, out: &mut Vec<Completion>, limit: usize) -> Result<(), TransportError> {
        if self.link.with(|sides| sides.side(self.end).poll(out, limit)) {
            return Ok(());
        }
        let source = std::io::Error::other("the completion queue was overrun");
        Err(TransportError::Device { call: "ibv_poll_cq", source })
    }

    fn arm(&mut self) -> Result<(), TransportError> {
        self.link.with(|sides| sides.side(self.end).arm());
        Ok(())
    }

    fn poll_completion_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.link.with(|sides| {
            let signal = &mut sides.side(self.end).completion_event;
            if std::mem::take(&mut signal.raised) {
                return Poll::Ready(Ok(()));
            }
            wait_for(signal, cx)
        })
    }

    fn establish(&mut self) -> Result<(), TransportError> {
        self.established = true;
        match self.end {
            End::Active => {
                if !fabric::request(self.peer, self.link.clone(), self.local) {
                    let rejected = CmEvent::Rejected { reason: REASON_NO_LISTENER };
                    self.link.with(|sides| sides.side(End::Active).push_cm_event(rejected));
                }
            }
            End::Passive => self.link.with(|sides| sides.connect()),
        }
        Ok(())
    }

    fn poll_cm_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CmEvent, TransportError>> {
        self.link.with(|sides| {
            let side = sides.side(self.end);
            let event = side.cm_events.pop_front();
            side.cm_signal.raised = !side.cm_events.is_empty();
            match event {
                Some(event) => Poll::Ready(Ok(event)),
                None => wait_for(&mut side.cm_signal, cx),
            }
        })
    }

    fn disconnect(&mut self) {
        self.link.with(|sides| sides.disconnect(self.end));
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
        DeviceInfo { kind: DeviceKind::Emulated, name: super::NAME.to_owned(), mtu: None, software: true }
    }
}

impl Drop for EmulatedEndpoint {
    fn drop(&mut self) {
        if self.end == End::Passive && !self.established {
            let rejected = CmEvent::Rejected { reason: REASON_CONSUMER };
            self.link.with(|sides| sides.side(End::Active).push_cm_event(rejected));
        }
        self.disconnect();
    }
}

fn wait_for<T>(signal: &mut Signal, cx: &mut Context<'_>) -> Poll<T> {
    match &mut signal.waker {
        Some(waker) => waker.clone_from(cx.waker()),
        None => signal.waker = Some(cx.waker().clone()),
    }
    Poll::Pending
}

fn loopback_like(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
    }
}

/// A port of the dynamic range, for an active end or a listener that asks for any.
pub(super) fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const DYNAMIC: u16 = 49_152;
    DYNAMIC + NEXT.fetch_add(1, Ordering::Relaxed) % (u16::MAX - DYNAMIC)
}

/// Keys count up over the process, so that a stale one never fits.
static NEXT_KEY: AtomicU32 = AtomicU32::new(1);

/// Nothing listens (IB CM reject reason "invalid service ID").
pub(super) const REASON_NO_LISTENER: i32 = 8;

/// The listener's owner said no (IB CM reject reason "consumer defined").
pub(super) const REASON_CONSUMER: i32 = 28;
