//! The listeners of this process, by address, and ports for ends that have no socket of their own.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::{Context, Poll, Waker};

use super::REASON_NO_LISTENER;
use super::direct::{DirectLink, Sides};
use crate::device::report::REASON_CONSUMER;
use crate::sync::{Mutex, lock};

static LISTENERS: Mutex<BTreeMap<SocketAddr, Arc<Mutex<Backlog>>>> = Mutex::new(BTreeMap::new());

/// Pending connect requests.
#[derive(Debug, Default)]
struct Backlog {
    requests: VecDeque<(DirectLink, SocketAddr)>,
    waker: Option<Waker>,
    /// The listener is gone: no more requests.
    closed: bool,
}

/// A connect request in its listener's hands. Dropping it rejects it.
#[derive(Debug)]
pub(super) struct DirectRequest {
    /// `None` once a connection has taken over.
    link: Option<DirectLink>,
    pub(super) from: SocketAddr,
}

impl DirectRequest {
    /// Takes the link over: now the connection answers for the request.
    pub(super) fn take(mut self) -> DirectLink {
        self.link.take().expect("taken only here, by value")
    }
}

impl Drop for DirectRequest {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            link.with(|sides| sides.reject(REASON_CONSUMER));
        }
    }
}

/// Whether a listener of this process can be reached at `addr`.
pub(super) fn listens(addr: SocketAddr) -> bool {
    find(addr).is_some()
}

/// Brings a connect request to the listener at `to`, or rejects it if there is none.
pub(super) fn request(to: SocketAddr, link: DirectLink, from: SocketAddr) {
    if !link.with(Sides::ask) {
        return;
    }
    let backlog = find(to);
    let brought = backlog.and_then(|backlog| {
        let mut backlog = lock(&backlog);
        if backlog.closed {
            return None;
        }
        backlog.requests.push_back((link.clone(), from));
        Some(backlog.waker.take())
    });
    match brought {
        Some(waker) => drop(waker.map(Waker::wake)),
        None => link.with(|sides| sides.reject(REASON_NO_LISTENER)),
    }
}

fn find(addr: SocketAddr) -> Option<Arc<Mutex<Backlog>>> {
    let listeners = lock(&LISTENERS);
    if let Some(backlog) = listeners.get(&addr) {
        return Some(backlog.clone());
    }
    let any = SocketAddr::new(unspecified_like(addr.ip()), addr.port());
    listeners.get(&any).filter(|_| is_here(addr.ip())).cloned()
}

/// Whether an address is this machine's: only to such a one can anything be bound.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok()
}

/// An address of this process's directory.
#[derive(Debug)]
pub(super) struct Entry {
    addr: SocketAddr,
    backlog: Arc<Mutex<Backlog>>,
}

impl Entry {
    /// Enters an address; port 0 takes a free one.
    pub(super) fn new(mut addr: SocketAddr) -> io::Result<Self> {
        let mut listeners = lock(&LISTENERS);
        if addr.port() == 0 {
            for _ in 0..DYNAMIC_PORTS {
                addr.set_port(next_port());
                if !listeners.contains_key(&addr) {
                    break;
                }
            }
        }
        if listeners.contains_key(&addr) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let backlog = Arc::<Mutex<Backlog>>::default();
        listeners.insert(addr, backlog.clone());
        Ok(Self { addr, backlog })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Waits for the next connect request.
    pub(super) fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<DirectRequest> {
        let mut backlog = lock(&self.backlog);
        match backlog.requests.pop_front() {
            Some((link, from)) => Poll::Ready(DirectRequest { link: Some(link), from }),
            None => {
                backlog.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock(&LISTENERS).remove(&self.addr);
        let requests = {
            let mut backlog = lock(&self.backlog);
            backlog.closed = true;
            std::mem::take(&mut backlog.requests)
        };
        for (link, _) in requests {
            link.with(|sides| sides.reject(REASON_NO_LISTENER));
        }
    }
}

fn unspecified_like(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
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
