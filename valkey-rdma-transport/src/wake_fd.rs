//! A waker that a descriptor shows: readable from when it is woken until it is lowered.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

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
