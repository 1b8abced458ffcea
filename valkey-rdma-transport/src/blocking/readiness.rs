//! A descriptor that says when to try again: readable unless the last try found nothing to do.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use crate::device::WakeFd;

/// One direction of a stream.
#[derive(Debug)]
pub(super) struct Readiness {
    fd: Arc<WakeFd>,
    /// A thread found no turn, and has lowered the descriptor.
    is_contended: AtomicBool,
}

impl Readiness {
    pub(super) fn new() -> io::Result<Self> {
        // The program has the descriptor, and may read from it although it should not.
        let fd = WakeFd::nonblocking()?;
        fd.raise();
        Ok(Self { fd, is_contended: AtomicBool::new(false) })
    }

    /// Another try is worth it, for all that is known here.
    pub(super) fn raise(&self) {
        self.fd.raise();
    }

    /// Another thread has the turn: a try is worth it when that ends.
    pub(super) fn wait_for_turn(&self) {
        self.is_contended.store(true, Ordering::SeqCst);
    }

    /// The turn of this thread has ended. Others that found none try again.
    pub(super) fn end_turn(&self) {
        if self.is_contended.swap(false, Ordering::SeqCst) {
            self.fd.raise();
        }
    }

    /// Runs one try. If there is nothing to do, the descriptor is not readable until there is.
    pub(super) fn attempt<T>(&self, mut step: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let waker = Waker::from(Arc::clone(&self.fd));
        let mut cx = Context::from_waker(&waker);
        if let Poll::Ready(done) = step(&mut cx) {
            return Poll::Ready(done);
        }
        self.fd.lower();
        // What woke the waker since the first try may have been lowered with the rest.
        let again = step(&mut cx);
        if again.is_ready() {
            self.fd.raise();
        }
        again
    }
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
