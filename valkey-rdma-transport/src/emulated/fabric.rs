//! Who listens where, within this process.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::endpoint::{EmulatedEndpoint, REASON_CONSUMER, REASON_NO_LISTENER, next_port};
use super::link::{End, Link};
use crate::device::{CmEvent, ConnectRequest, DeviceKind, Endpoint, EndpointOptions, PassiveEndpoint};
use crate::error::TransportError;

static LISTENERS: Mutex<BTreeMap<SocketAddr, Arc<Mutex<Backlog>>>> = Mutex::new(BTreeMap::new());

/// Connect requests nobody has taken yet.
#[derive(Debug, Default)]
struct Backlog {
    requests: VecDeque<(Link, SocketAddr)>,
    waker: Option<Waker>,
    /// The listener is gone: no more requests.
    closed: bool,
}

/// A connect request in its listener's hands.
#[derive(Debug)]
struct Request {
    /// `None` once an endpoint has taken over.
    link: Option<Link>,
    to: SocketAddr,
    from: SocketAddr,
}

impl ConnectRequest for Request {
    fn peer_addr(&self) -> SocketAddr {
        self.from
    }

    fn accept(mut self: Box<Self>, options: &EndpointOptions) -> Result<Box<dyn Endpoint>, TransportError> {
        let link = self.link.take().expect("taken only here, by value");
        Ok(Box::new(EmulatedEndpoint::passive(link, options, self.to, self.from)))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            reject(link, REASON_CONSUMER);
        }
    }
}

/// Tells the active end that its request is turned down.
fn reject(link: &Link, reason: i32) {
    link.with(|sides| sides.side(End::Active).push_cm_event(CmEvent::Rejected { reason }));
}

/// Brings a connect request to the listener at `to`. `false`: nobody listens there.
pub(super) fn request(to: SocketAddr, link: Link, from: SocketAddr) -> bool {
    let any = SocketAddr::new(unspecified_like(to.ip()), to.port());
    let backlog = {
        let listeners = lock(&LISTENERS);
        listeners.get(&to).or_else(|| listeners.get(&any)).cloned()
    };
    let Some(backlog) = backlog else { return false };
    let waker = {
        let mut backlog = lock(&backlog);
        if backlog.closed {
            return false;
        }
        backlog.requests.push_back((link, from));
        backlog.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
    true
}

/// Listens on one address of the process-wide fabric.
#[derive(Debug)]
pub(super) struct EmulatedListener {
    addr: SocketAddr,
    backlog: Arc<Mutex<Backlog>>,
}

impl EmulatedListener {
    pub(super) fn bind(addr: SocketAddr) -> Result<Self, TransportError> {
        let mut listeners = lock(&LISTENERS);
        let mut addr = addr;
        if addr.port() == 0 {
            addr.set_port(next_port());
            while listeners.contains_key(&addr) {
                addr.set_port(next_port());
            }
        }
        if listeners.contains_key(&addr) {
            let source = io::ErrorKind::AddrInUse.into();
            return Err(TransportError::Listen { addr, device: DeviceKind::Emulated, source });
        }
        let backlog = Arc::<Mutex<Backlog>>::default();
        listeners.insert(addr, backlog.clone());
        Ok(Self { addr, backlog })
    }
}

impl PassiveEndpoint for EmulatedListener {
    fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Box<dyn ConnectRequest>, TransportError>> {
        let mut backlog = lock(&self.backlog);
        let Some((link, from)) = backlog.requests.pop_front() else {
            backlog.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        Poll::Ready(Ok(Box::new(Request { link: Some(link), to: self.addr, from })))
    }

    fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for EmulatedListener {
    fn drop(&mut self) {
        lock(&LISTENERS).remove(&self.addr);
        let requests = {
            let mut backlog = lock(&self.backlog);
            backlog.closed = true;
            std::mem::take(&mut backlog.requests)
        };
        for (link, _) in requests {
            reject(&link, REASON_NO_LISTENER);
        }
    }
}

fn unspecified_like(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
