//! Ending a thread's wait for a device from another thread, with a waker that a descriptor shows.

use std::io::{self, ErrorKind, Read, Write};
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
    /// [`Interrupt::raise`] was called, and no wait has ended by that yet.
    raised: Arc<AtomicBool>,
    fd: Arc<WakeFd>,
    /// Of `fd`, kept because a new one for each wait costs.
    waker: Waker,
}

impl Interrupt {
    /// One that is not raised.
    ///
    /// # Errors
    /// The system's, if this process may open no more descriptors.
    pub fn new() -> io::Result<Self> {
        let fd = WakeFd::new()?;
        Ok(Self { raised: Arc::default(), waker: Waker::from(Arc::clone(&fd)), fd })
    }

    /// Ends the wait that a thread is in, or the next one.
    pub fn raise(&self) {
        self.raised.store(true, Ordering::SeqCst);
        self.fd.raise();
    }

    /// Whether it was raised since the last call.
    pub(crate) fn take(&self) -> bool {
        // Most calls find nothing: a load does not take the cache line away from who raises it.
        self.raised.load(Ordering::SeqCst) && self.raised.swap(false, Ordering::SeqCst)
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
                self.fd.lower();
                Ok(false)
            }
        }
    }

    /// A descriptor that is readable since the waker was woken.
    #[cfg(feature = "verbs")]
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Makes the descriptor unreadable until the waker is woken again. Look for what it was woken for after this call.
    #[cfg(feature = "verbs")]
    pub(crate) fn lower(&self) {
        // Otherwise it would wait.
        if self.fd.is_raised() {
            self.fd.lower();
        }
    }
}

/// A waker that a descriptor shows: readable from when it is woken until it is lowered.
#[derive(Debug)]
pub(crate) struct WakeFd {
    /// A byte is in the socket, or will be in a moment.
    raised: AtomicBool,
    raise: UnixStream,
    /// Becomes readable when it is raised.
    watched: UnixStream,
}

impl WakeFd {
    /// One that is not raised, for a thread that [sleeps](Self::lower) until it is.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let (watched, raise) = UnixStream::pair()?;
        Ok(Arc::new(Self { raised: AtomicBool::new(false), raise, watched }))
    }

    /// One that never blocks.
    pub(crate) fn nonblocking() -> io::Result<Arc<Self>> {
        let fd = Self::new()?;
        fd.watched.set_nonblocking(true)?;
        fd.raise.set_nonblocking(true)?;
        Ok(fd)
    }

    pub(crate) fn raise(&self) {
        if !self.raised.swap(true, Ordering::SeqCst) {
            // Where no byte fits, there is one already.
            let _ = (&self.raise).write(&[1]);
        }
    }

    #[cfg(feature = "verbs")]
    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    /// Makes the descriptor unreadable. Unless it never blocks, first waits until it is raised; a signal may end that early.
    ///
    /// Look for what it was raised for after this call: a waker that came before the end of it may have written nothing.
    pub(crate) fn lower(&self) {
        match (&self.watched).read(&mut [0; 64]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // After the read: from here on every waker writes again.
            _ => self.raised.store(false, Ordering::SeqCst),
        }
    }
}

impl AsFd for WakeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }
}

impl Wake for WakeFd {
    fn wake(self: Arc<Self>) {
        self.raise();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.raise();
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
        interrupt.fd.lower();
        assert!(interrupt.take());
        assert!(!interrupt.take());
        let other = interrupt.clone();
        let raising = std::thread::spawn(move || other.raise());
        interrupt.fd.lower();
        assert!(interrupt.take());
        raising.join().expect("no panic");
    }

    #[test]
    fn woken_it_ends_the_sleep_and_is_not_raised() {
        let interrupt = Interrupt::new().expect("descriptors");
        interrupt.waker().wake_by_ref();
        interrupt.waker().wake_by_ref();
        interrupt.fd.lower();
        assert!(!interrupt.take());
        interrupt.waker().wake_by_ref();
        interrupt.fd.lower();
    }
}
