//! [`Quota`]: when the work of a run is over.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use futures_util::task::AtomicWaker;
use valkey_rdma_transport::raw::Interrupt;

/// How much an end receives in a run: messages, or over TCP bytes. Clones are the same one.
#[derive(Clone)]
pub(super) struct Quota(Arc<Count>);

struct Count {
    wanted: AtomicU64,
    received: AtomicU64,
    /// Wakes the task that waits, and the thread.
    waker: AtomicWaker,
    interrupt: Interrupt,
}

impl Quota {
    /// One that is never reached.
    pub(super) fn endless() -> io::Result<Self> {
        Ok(Self(Arc::new(Count {
            wanted: AtomicU64::new(u64::MAX),
            received: AtomicU64::new(0),
            waker: AtomicWaker::new(),
            interrupt: Interrupt::new()?,
        })))
    }

    /// Sets the number, which may have arrived already.
    pub(super) fn set(&self, wanted: u64) {
        self.0.wanted.store(wanted, Ordering::Release);
        self.0.interrupt.raise();
        self.0.waker.wake();
    }

    /// Counts what has arrived.
    pub(super) fn count(&self, received: u64) {
        self.0.received.fetch_add(received, Ordering::Relaxed);
    }

    pub(super) fn is_reached(&self) -> bool {
        self.0.received.load(Ordering::Relaxed) >= self.0.wanted.load(Ordering::Acquire)
    }

    /// Waits in a task until it is reached. The same task polls what receives, before this.
    pub(super) async fn reached(&self) {
        poll_fn(|context| {
            self.0.waker.register(context.waker());
            if self.is_reached() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// What ends a thread's wait when the number changes.
    pub(super) fn interrupt(&self) -> &Interrupt {
        &self.0.interrupt
    }
}
