//! Ending a thread's wait for a device from another thread.

use std::io::{self, Read, Write};
#[cfg(feature = "verbs")]
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::error::TransportError;

/// Ends a wait that blocks a thread: that of [`QueuePair::blocking_wait`](crate::raw::QueuePair::blocking_wait), or of
/// [`DeviceConnection::wait_completion_event`](super::DeviceConnection::wait_completion_event). Clones are the same one; one thread
/// waits with it at a time.
#[derive(Clone, Debug)]
pub struct Interrupt {
    bell: Arc<Bell>,
    /// The bell's, kept because a new one for each wait costs.
    waker: Waker,
}

#[derive(Debug)]
struct Bell {
    /// [`Interrupt::raise`] was called, and no wait has ended by that yet.
    raised: AtomicBool,
    /// A byte is in the socket, or will be in a moment.
    rung: AtomicBool,
    ring: UnixStream,
    /// Becomes readable when the bell rings.
    watched: UnixStream,
}

impl Interrupt {
    /// One that is not raised.
    ///
    /// # Errors
    /// The system's, if this process may open no more descriptors.
    pub fn new() -> io::Result<Self> {
        let (watched, ring) = UnixStream::pair()?;
        let bell =
            Arc::new(Bell { raised: AtomicBool::new(false), rung: AtomicBool::new(false), ring, watched });
        Ok(Self { waker: Waker::from(Arc::clone(&bell)), bell })
    }

    /// Ends the wait that a thread is in, or the next one.
    pub fn raise(&self) {
        self.bell.raised.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    /// Whether it was raised since the last call.
    pub(crate) fn take(&self) -> bool {
        // Most calls find nothing: a load does not take the cache line away from who raises it.
        self.bell.raised.load(Ordering::SeqCst) && self.bell.raised.swap(false, Ordering::SeqCst)
    }

    /// Wakes the waiting thread without raising it: there may be something for it.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Polls once. If there is nothing yet, blocks the thread until the waker is woken: `false`.
    pub(crate) fn wait_for(
        &self,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<Result<(), TransportError>>,
    ) -> Result<bool, TransportError> {
        match poll(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(event) => event.map(|()| true),
            Poll::Pending => {
                self.sleep();
                Ok(false)
            }
        }
    }

    /// Blocks the thread until the waker was woken, or it was raised.
    fn sleep(&self) {
        // Interrupted by a signal, the caller looks once more than needed.
        if let Ok(1..) = (&self.bell.watched).read(&mut [0]) {
            self.bell.rung.store(false, Ordering::SeqCst);
        }
    }

    /// A descriptor that is readable since the waker was woken.
    #[cfg(feature = "verbs")]
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.watched.as_fd()
    }

    /// Makes the descriptor unreadable until the waker is woken again. Look for what it was woken for after this call.
    #[cfg(feature = "verbs")]
    pub(crate) fn lower(&self) {
        if self.bell.rung.load(Ordering::SeqCst) {
            self.sleep();
        }
    }
}

impl Bell {
    fn ring(&self) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            // The socket is empty, so there is room.
            let _ = (&self.ring).write(&[1]);
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raised_before_or_during_the_sleep_it_ends_it_once() {
        let interrupt = Interrupt::new().expect("descriptors");
        interrupt.raise();
        interrupt.raise();
        interrupt.sleep();
        assert!(interrupt.take());
        assert!(!interrupt.take());
        let other = interrupt.clone();
        let raising = std::thread::spawn(move || other.raise());
        interrupt.sleep();
        assert!(interrupt.take());
        raising.join().expect("no panic");
    }

    #[test]
    fn woken_it_ends_the_sleep_and_is_not_raised() {
        let interrupt = Interrupt::new().expect("descriptors");
        interrupt.waker().wake_by_ref();
        interrupt.waker().wake_by_ref();
        interrupt.sleep();
        assert!(!interrupt.take());
        interrupt.waker().wake_by_ref();
        interrupt.sleep();
    }
}
