//! [`Completions`]: what background threads have finished, and a descriptor that is readable while there is some.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard};

use rustix::event::{EventfdFlags, eventfd};
use valkey_rdma_transport::sync::lock;

/// A queue with an eventfd. A burst of completions costs one write and one wake-up.
pub(crate) struct Completions<T> {
    done: Mutex<Vec<T>>,
    event: OwnedFd,
}

impl<T> Completions<T> {
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { done: Mutex::default(), event })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    pub(crate) fn push(&self, item: T) {
        let mut done = self.done();
        done.push(item);
        if done.len() == 1 {
            self.ring();
        }
    }

    /// Makes the descriptor readable.
    pub(crate) fn ring(&self) {
        // It fails only if the counter is at its end, and then the descriptor is readable.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Takes all completions. The descriptor is not readable until the next one.
    pub(crate) fn take(&self) -> Vec<T> {
        let mut done = self.done();
        // It fails if nothing was written since the last time.
        let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
        std::mem::take(&mut *done)
    }

    /// Takes back completions that were taken and not used. They come first, and the descriptor is readable.
    pub(crate) fn put_back(&self, mut unused: Vec<T>) {
        let mut done = self.done();
        unused.append(&mut done);
        *done = unused;
        self.ring();
    }

    fn done(&self) -> MutexGuard<'_, Vec<T>> {
        lock(&self.done)
    }
}
