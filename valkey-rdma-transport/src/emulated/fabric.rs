//! Who listens where, within this process.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::endpoint::{EmulatedEndpoint, next_port};
use super::link::{End, Link};
use crate::device::{CmEvent, DeviceKind, Endpoint, EndpointOptions, PassiveEndpoint};
use crate::error::TransportError;

static LISTENERS: Mutex<BTreeMap<SocketAddr, Arc<Mutex<Backlog>>>> = Mutex::new(BTreeMap::new());

/// Connect requests nobody has taken yet.
#[derive(Debug, Default)]
struct Backlog {
    requests: VecDeque<Request>,
    waker: Option<Waker>,
    /// The listener is gone: no more requests.
    closed: bool,
}

#[derive(Debug)]
struct Request {
    link: Link,
    from: SocketAddr,
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
        backlog.requests.push_back(Request { link, from });
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
    options: EndpointOptions,
    backlog: Arc<Mutex<Backlog>>,
}

impl EmulatedListener {
    pub(super) fn bind(addr: SocketAddr, options: &EndpointOptions) -> Result<Self, TransportError> {
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
        Ok(Self { addr, options: options.clone(), backlog })
    }
}

impl PassiveEndpoint for EmulatedListener {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<dyn Endpoint>, TransportError>> {
        let mut backlog = lock(&self.backlog);
        let Some(request) = backlog.requests.pop_front() else {
            backlog.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let endpoint = EmulatedEndpoint::passive(request.link, &self.options, self.addr, request.from);
        Poll::Ready(Ok(Box::new(endpoint)))
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
        for request in requests {
            let rejected = CmEvent::Rejected { reason: 0 };
            request.link.with(|sides| sides.side(End::Active).push_cm_event(rejected));
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
