//! A descriptor that says when to try again: readable unless the last try found nothing to do.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// One direction of a stream.
#[derive(Debug)]
pub(super) struct Readiness {
    signal: Arc<Signal>,
    /// What `poll(2)` looks at.
    watched: UnixStream,
}

#[derive(Debug)]
struct Signal {
    raised: AtomicBool,
    /// A byte written here makes the other end readable.
    raise: UnixStream,
}

impl Readiness {
    pub(super) fn new() -> io::Result<Self> {
        let (watched, raise) = UnixStream::pair()?;
        watched.set_nonblocking(true)?;
        raise.set_nonblocking(true)?;
        let signal = Arc::new(Signal { raised: AtomicBool::new(false), raise });
        signal.raise();
        Ok(Self { signal, watched })
    }

    /// Another try is worth it, for all that is known here.
    pub(super) fn raise(&self) {
        self.signal.raise();
    }

    /// Runs one try. If there is nothing to do, the descriptor is not readable until there is.
    pub(super) fn attempt<T>(&self, mut step: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let waker = Waker::from(Arc::clone(&self.signal));
        let mut cx = Context::from_waker(&waker);
        if let Poll::Ready(done) = step(&mut cx) {
            return Poll::Ready(done);
        }
        self.signal.lower(&self.watched);
        // What woke the waker since the first try may have been lowered with the rest.
        let again = step(&mut cx);
        if again.is_ready() {
            self.signal.raise();
        }
        again
    }
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }
}

impl Signal {
    fn raise(&self) {
        if !self.raised.swap(true, Ordering::SeqCst) {
            // Where no byte fits, there is one already.
            let _ = (&self.raise).write(&[1]);
        }
    }

    fn lower(&self, mut watched: &UnixStream) {
        // In this order: after the store every waker writes again. What a waker announces before the store is found by the try
        // that follows.
        let _ = watched.read(&mut [0; 64]);
        self.raised.store(false, Ordering::SeqCst);
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.raise();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.raise();
    }
}
