//! A descriptor that says when to try again: readable unless the last try found nothing to do.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, TryLockError};
use std::task::{Context, Poll, Waker};

use crate::device::WakeFd;
use crate::sync::{Mutex, MutexGuard};

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

    /// Takes the turn of this thread in this direction, without waiting. While another thread has it, the descriptor is not readable; it
    /// is when that turn [ends](Self::end_turn).
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if another thread has the turn.
    pub(super) fn try_turn<'a, H>(&self, half: &'a Mutex<H>) -> io::Result<MutexGuard<'a, H>> {
        let turn = self.attempt(|_| match half.try_lock() {
            Ok(half) => Poll::Ready(half),
            Err(TryLockError::Poisoned(half)) => Poll::Ready(half.into_inner()),
            Err(TryLockError::WouldBlock) => {
                self.is_contended.store(true, Ordering::SeqCst);
                Poll::Pending
            }
        });
        match turn {
            Poll::Ready(half) => Ok(half),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
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
