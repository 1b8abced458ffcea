//! A descriptor that says when to try again: readable unless the last try found nothing to do.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::wake_fd::WakeFd;

/// One direction of a stream.
#[derive(Debug)]
pub(super) struct Readiness {
    fd: Arc<WakeFd>,
}

impl Readiness {
    pub(super) fn new() -> io::Result<Self> {
        // The program has the descriptor, and may read from it although it should not.
        let fd = WakeFd::nonblocking()?;
        fd.raise();
        Ok(Self { fd })
    }

    /// Another try is worth it, for all that is known here.
    pub(super) fn raise(&self) {
        self.fd.raise();
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
