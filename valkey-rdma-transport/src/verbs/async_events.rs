//! A device's asynchronous events: what it reports of itself, its ports and queue pairs outside of any completion.
//!
//! All connections over a device share one descriptor for these events, because librdmacm opens each device once
//! per process. One thread per device in use waits on it, hands each event to the connections it is about, and
//! acknowledges it, without which destroying a queue pair would block. A thread, because connections may live in
//! several tokio runtimes, none of which is there for all of them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};

use super::sys::{ibv_context, ibv_cq};

use super::qp::QueuePair;
use super::sys::convert::AsyncNotice;
use super::{failed, sys};
use crate::device::DeviceFault;
use crate::error::TransportError;
use crate::process::without_signals;
use crate::sync::{Mutex, MutexGuard, keep_waker, lock};

/// One connection's subscription to its device's events. Drop it before the queue pair: events name that by its address.
pub(super) struct AsyncEvents {
    device: usize,
    subscriber: u64,
    mailbox: Arc<Mutex<Mailbox>>,
}

/// Events that a connection has not taken yet: the last of each kind.
#[derive(Default)]
struct Mailbox {
    fault: Option<AsyncEvent>,
    established: Option<AsyncEvent>,
    port: Option<AsyncEvent>,
    waker: Option<Waker>,
}

impl Mailbox {
    fn put(&mut self, event: AsyncEvent) {
        let place = match event {
            AsyncEvent::Fault(_) => &mut self.fault,
            AsyncEvent::Established => &mut self.established,
            AsyncEvent::PortDown | AsyncEvent::PortUp => &mut self.port,
        };
        *place = Some(event);
    }

    fn take(&mut self) -> Option<AsyncEvent> {
        self.fault.take().or_else(|| self.established.take()).or_else(|| self.port.take())
    }
}

/// What an event means to one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AsyncEvent {
    Fault(DeviceFault),
    PortDown,
    PortUp,
    /// Something was received before the peer's message that it is connected.
    Established,
}

impl AsyncEvents {
    /// Takes part in the events of a device.
    ///
    /// # Safety
    /// The device stays open until the value returned is dropped.
    pub(super) unsafe fn new(
        device: NonNull<ibv_context>,
        port: u8,
        queue_pair: &QueuePair,
        queue: NonNull<ibv_cq>,
    ) -> Result<Self, TransportError> {
        let key = device.as_ptr() as usize;
        let mut registry = registry();
        if let Entry::Vacant(entry) = registry.watches.entry(key) {
            // SAFETY: the device stays open, and the thread ends before it closes: see `drop`.
            entry.insert(unsafe { Watch::start(device) }?);
        }
        let subscriber = registry.next_subscriber;
        registry.next_subscriber += 1;
        let mailbox = Arc::new(Mutex::new(Mailbox::default()));
        let subscription = Subscription {
            port,
            queue_pair: queue_pair.address(),
            queue: queue.as_ptr() as u64,
            mailbox: Arc::clone(&mailbox),
        };
        registry.subscriptions.insert((key, subscriber), subscription);
        Ok(Self { device: key, subscriber, mailbox })
    }

    /// Takes an event of the connection. `Pending` keeps the waker.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<AsyncEvent> {
        let mut mailbox = lock(&self.mailbox);
        if let Some(event) = mailbox.take() {
            return Poll::Ready(event);
        }
        keep_waker(&mut mailbox.waker, cx);
        Poll::Pending
    }
}

impl Drop for AsyncEvents {
    /// The last one of a device ends its thread, and waits for that.
    fn drop(&mut self) {
        let mut registry = registry();
        registry.subscriptions.remove(&(self.device, self.subscriber));
        let others =
            registry.subscriptions.range((self.device, 0)..=(self.device, u64::MAX)).next().is_some();
        let watch = if others { None } else { registry.watches.remove(&self.device) };
        drop(registry);
        if let Some(watch) = watch {
            watch.end();
        }
    }
}

/// Of the whole process.
static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { watches: BTreeMap::new(), subscriptions: BTreeMap::new(), next_subscriber: 0 });

struct Registry {
    /// By the address of the device's context.
    watches: BTreeMap<usize, Watch>,
    /// By device and a number of their own.
    subscriptions: BTreeMap<(usize, u64), Subscription>,
    next_subscriber: u64,
}

struct Subscription {
    port: u8,
    queue_pair: u64,
    queue: u64,
    mailbox: Arc<Mutex<Mailbox>>,
}

impl Subscription {
    /// What the device's event means to this connection, if anything.
    fn event(&self, notice: AsyncNotice) -> Option<AsyncEvent> {
        match notice {
            AsyncNotice::Device => Some(AsyncEvent::Fault(DeviceFault::Device)),
            AsyncNotice::QueuePair { address, fault } => {
                (address == self.queue_pair).then_some(AsyncEvent::Fault(fault))
            }
            AsyncNotice::CompletionQueue { address } => {
                (address == self.queue).then_some(AsyncEvent::Fault(DeviceFault::CompletionQueue))
            }
            AsyncNotice::Established { address } => {
                (address == self.queue_pair).then_some(AsyncEvent::Established)
            }
            AsyncNotice::PortDown { port } => (port == self.port).then_some(AsyncEvent::PortDown),
            AsyncNotice::PortUp { port } => (port == self.port).then_some(AsyncEvent::PortUp),
            AsyncNotice::Other { .. } => None,
        }
    }
}

fn registry() -> MutexGuard<'static, Registry> {
    lock(&REGISTRY)
}

/// The thread that waits for one device's events.
struct Watch {
    /// Shutting it down ends the thread.
    stop: UnixStream,
    thread: JoinHandle<()>,
}

impl Watch {
    /// # Safety
    /// The device stays open until the thread has ended, or runs wakers for the last time.
    unsafe fn start(device: NonNull<ibv_context>) -> Result<Self, TransportError> {
        // SAFETY: open as long as the thread uses it, by the contract.
        let events = unsafe { sys::async_fd(device) }.map_err(failed("fcntl"))?;
        let (stopped, stop) = UnixStream::pair().map_err(failed("socketpair"))?;
        let device = Device(device);
        let run = move || watch(device, events, &stopped);
        let thread = thread::Builder::new().name("rdma-events".to_owned());
        let thread = without_signals(|| thread.spawn(run)).map_err(failed("pthread_create"))?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread, and waits for that.
    fn end(self) {
        let Self { stop, thread } = self;
        // Closing it is not enough: a forked child has a copy, which it may never close. It fails where the thread has ended.
        let _ = stop.shutdown(Shutdown::Write);
        // A waker run by the thread may have dropped its last connection. The thread then touches the device no more:
        // wakers are the last thing it runs before it looks for the end.
        if thread.thread().id() != thread::current().id() && thread.join().is_err() {
            tracing::warn!("the thread that took a device's events had panicked");
        }
    }
}

/// The open device of a [`Watch`].
#[derive(Clone, Copy)]
struct Device(NonNull<ibv_context>);

// SAFETY: only ever handed to libibverbs, whose calls on a context may come from any thread.
unsafe impl Send for Device {}

/// Delivers the device's events until the other end of `stopped` is shut down.
fn watch(device: Device, events: BorrowedFd<'_>, stopped: &UnixStream) {
    let Device(context) = device;
    loop {
        match sys::wait_readable(stopped.as_fd(), events) {
            Ok([false, _]) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok([true, _]) => return,
            Err(error) => {
                // The device may be well: its connections go on, and learn of faults from their completions.
                tracing::error!(%error, "a device's events cannot be waited for any more");
                unregister(&mut registry(), context);
                return;
            }
        }
        // SAFETY: no call has ended it, so the device is open.
        let (notice, gone) = match unsafe { sys::get_async_event(context) } {
            Ok(event) => {
                let notice = event.notice();
                // Before it is acknowledged: until then the object that it names is not destroyed, and its address stands for
                // no other.
                let wakers = deliver(&registry(), context, notice);
                // SAFETY: as above.
                unsafe { event.acknowledge() };
                wakers.into_iter().for_each(Waker::wake);
                (notice, false)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => {
                tracing::warn!(%error, "a device's events cannot be read any more: it is gone");
                // Under one lock: a connection that subscribes later starts a thread of its own, which reports the fault to it.
                let mut all = registry();
                unregister(&mut all, context);
                let wakers = deliver(&all, context, AsyncNotice::Device);
                drop(all);
                wakers.into_iter().for_each(Waker::wake);
                (AsyncNotice::Device, true)
            }
        };
        match notice {
            AsyncNotice::Other { .. } | AsyncNotice::Established { .. } | AsyncNotice::PortUp { .. } => {
                tracing::debug!(?notice, "event of a device");
            }
            _ => tracing::warn!(?notice, "event of a device"),
        }
        if gone {
            return;
        }
    }
}

/// Takes the running thread out of the registry before it ends on its own: the next connection on the device starts another
/// one.
fn unregister(registry: &mut Registry, device: NonNull<ibv_context>) {
    // A drop that waits for this thread has taken it out already. What is there then is its successor.
    if let Entry::Occupied(entry) = registry.watches.entry(device.as_ptr() as usize)
        && entry.get().thread.thread().id() == thread::current().id()
    {
        entry.remove();
    }
}

/// Puts the event into the mailboxes of the connections that it concerns. Returns their wakers, to be woken when no lock is
/// held.
fn deliver(registry: &Registry, device: NonNull<ibv_context>, notice: AsyncNotice) -> Vec<Waker> {
    let device = device.as_ptr() as usize;
    let mut wakers = Vec::new();
    for subscription in registry.subscriptions.range((device, 0)..=(device, u64::MAX)).map(|(_, each)| each) {
        let Some(event) = subscription.event(notice) else { continue };
        let mut mailbox = lock(&subscription.mailbox);
        mailbox.put(event);
        wakers.extend(mailbox.waker.take());
    }
    wakers
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn subscription() -> Subscription {
        Subscription { port: 1, queue_pair: 0x1000, queue: 0x2000, mailbox: Arc::default() }
    }

    #[test]
    fn an_event_concerns_the_connection_whose_object_it_names() {
        let concerned = subscription();
        let fault = DeviceFault::AccessViolation;
        for (notice, event) in [
            (AsyncNotice::QueuePair { address: 0x1000, fault }, Some(AsyncEvent::Fault(fault))),
            (AsyncNotice::QueuePair { address: 0x1001, fault }, None),
            (
                AsyncNotice::CompletionQueue { address: 0x2000 },
                Some(AsyncEvent::Fault(DeviceFault::CompletionQueue)),
            ),
            (AsyncNotice::CompletionQueue { address: 0x1000 }, None),
            (AsyncNotice::Established { address: 0x1000 }, Some(AsyncEvent::Established)),
            (AsyncNotice::Established { address: 0x2000 }, None),
            (AsyncNotice::PortDown { port: 1 }, Some(AsyncEvent::PortDown)),
            (AsyncNotice::PortDown { port: 2 }, None),
            (AsyncNotice::PortUp { port: 1 }, Some(AsyncEvent::PortUp)),
            (AsyncNotice::Device, Some(AsyncEvent::Fault(DeviceFault::Device))),
            (AsyncNotice::Other { number: 18 }, None),
        ] {
            assert_eq!(concerned.event(notice), event, "{notice:?}");
        }
    }

    #[test]
    fn a_fault_comes_first_and_nothing_hides_it() {
        let mut mailbox = Mailbox::default();
        let fault = AsyncEvent::Fault(DeviceFault::QueuePair);
        for event in [AsyncEvent::PortDown, fault, AsyncEvent::Established, AsyncEvent::PortUp] {
            mailbox.put(event);
        }
        let taken = std::iter::from_fn(|| mailbox.take()).collect::<Vec<_>>();
        assert_eq!(taken, [fault, AsyncEvent::Established, AsyncEvent::PortUp]);
    }

    #[test]
    fn a_forked_child_does_not_keep_the_thread_alive() {
        let (stopped, stop) = UnixStream::pair().expect("sockets");
        let _childs_copy = stop.try_clone().expect("a descriptor");
        let (events, _device) = UnixStream::pair().expect("sockets");
        let thread = thread::spawn(move || {
            sys::wait_readable(stopped.as_fd(), events.as_fd()).expect("the end");
        });
        let (sender, ended) = mpsc::channel();
        let end = move || {
            Watch { stop, thread }.end();
            sender.send(()).expect("the test waits");
        };
        thread::spawn(end);
        ended.recv_timeout(Duration::from_secs(60)).expect("the thread has ended");
    }

    #[test]
    fn a_thread_that_ends_by_itself_leaves_the_registry_and_its_successor_in_it() {
        // Only ever a key here.
        let mut place = 0_u64;
        let device = Device(NonNull::from(&mut place).cast());
        let key = device.0.as_ptr() as usize;
        let enter = || {
            let (go, wait) = mpsc::channel::<()>();
            let (_, stop) = UnixStream::pair().expect("sockets");
            let end = move || {
                let device = device;
                wait.recv().expect("the signal to go");
                unregister(&mut registry(), device.0);
            };
            let previous = registry().watches.insert(key, Watch { stop, thread: thread::spawn(end) });
            (go, previous)
        };
        let (first, none) = enter();
        assert!(none.is_none());
        let (second, previous) = enter();
        first.send(()).expect("it waits");
        previous.expect("the first").thread.join().expect("no panic");
        assert!(registry().watches.contains_key(&key), "the second is still in it");
        second.send(()).expect("it waits");
        while registry().watches.contains_key(&key) {
            thread::yield_now();
        }
    }
}
