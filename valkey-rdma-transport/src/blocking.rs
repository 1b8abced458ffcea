//! The byte stream for programs without async: [`Stream`] and [`Listener`] as `std::net` has them.
//!
//! Reads and writes run on the calling thread. A thread that reads or writes while no other one does takes the devices' events itself,
//! for all streams of the process. Otherwise one background thread does, also while there are nonblocking streams or bridged
//! descriptors. Do not call these functions from async tasks, which they would block.
//!
//! ```
//! use std::io::{Read, Write};
//! use valkey_rdma_transport::blocking::{Listener, Stream};
//! use valkey_rdma_transport::{Config, DeviceKind};
//!
//! # fn main() -> std::io::Result<()> {
//! let any = ([127, 0, 0, 1], 0).into();
//! let listener = Listener::bind(DeviceKind::Emulated, any, &Config::default())?;
//! let addr = listener.local_addr();
//! let echo = std::thread::spawn(move || {
//!     let mut stream = listener.accept()?;
//!     std::io::copy(&mut stream.try_clone()?, &mut stream)
//! });
//!
//! let mut stream = Stream::connect(DeviceKind::Emulated, addr, &Config::default())?;
//! stream.write_all(b"hello")?;
//! let mut answer = [0; 5];
//! stream.read_exact(&mut answer)?;
//! assert_eq!(&answer, b"hello");
//! drop(stream);
//! assert_eq!(echo.join().expect("no panic")?, 5);
//! # Ok(())
//! # }
//! ```

mod reactor;
mod readiness;
mod stream;
mod who_drives;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::PoisonError;
use std::task::Poll;
use std::{io, mem};

use tokio::sync::Semaphore;

use crate::config::Config;
use crate::device::DeviceKind;
use crate::sync::{Mutex, lock};

#[doc(hidden)]
pub use self::reactor::Reactor;
pub use self::stream::Stream;
#[cfg(target_os = "linux")]
pub(crate) use self::stream::as_io_error;

/// Accepts RDMA connections: what `std::net::TcpListener` is over TCP.
///
/// It belongs to the process that made it. In a child forked from that, [`accept`](Self::accept) fails, and dropping it does nothing.
pub struct Listener {
    /// `None` only while it is dropped.
    listener: Mutex<Option<crate::Listener>>,
    addr: SocketAddr,
    reactor: Reactor,
    /// Never has permits. Closed by [`stop`](Self::stop).
    stopped: Semaphore,
}

impl Listener {
    /// Listens on `addr`; port 0 takes a free one.
    ///
    /// # Errors
    /// As for [`Listener::bind`](crate::Listener::bind); the [`TransportError`](crate::TransportError) is the source.
    pub fn bind(kind: DeviceKind, addr: SocketAddr, config: &Config) -> io::Result<Self> {
        let reactor = Reactor::of_process()?;
        let listener = reactor.wait(crate::Listener::bind(kind, addr, config)).map_err(as_io_error)?;
        Ok(Self {
            addr: listener.local_addr(),
            listener: Mutex::new(Some(listener)),
            reactor,
            stopped: Semaphore::new(0),
        })
    }

    /// Waits for the next connection. Threads that wait at once take turns.
    ///
    /// # Errors
    /// As for [`Listener::accept`](crate::Listener::accept), after [`stop`](Self::stop), and in a forked child.
    pub fn accept(&self) -> io::Result<Stream> {
        Stream::new(self.accept_async()?, self.reactor.clone())
    }

    /// Waits for the next connection, as it is before it becomes a blocking one.
    pub(crate) fn accept_async(&self) -> io::Result<crate::Stream> {
        // A thread of the parent that waits in `accept` holds the lock.
        self.reactor.check_process("listener")?;
        let mut listener = lock(&self.listener);
        let listener = listener.as_mut().expect("taken only by dropping");
        let accepted = async {
            let mut accept = pin!(listener.accept());
            let mut stopped = pin!(self.stopped.acquire());
            poll_fn(|cx| match stopped.as_mut().poll(cx) {
                Poll::Ready(_) => Poll::Ready(Err(io::Error::other("the listener was stopped"))),
                Poll::Pending => accept.as_mut().poll(cx).map_err(as_io_error),
            })
            .await
        };
        // It may wait for long, beside threads that call.
        self.reactor.wait(accepted)
    }

    /// Makes every [`accept`](Self::accept) fail: those that wait in other threads, and later ones.
    pub fn stop(&self) {
        self.stopped.close();
    }

    /// Accepts connections one after another, until [`stop`](Self::stop).
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }

    /// The address it listens on, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Closing a child's copy would end the parent's listening: both wait on the same kernel objects.
        if self.reactor.owner_elsewhere().is_some() {
            mem::forget(self.listener.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

/// The connections of a [`Listener`]. It ends when the listener is stopped.
pub struct Incoming<'a>(&'a Listener);

impl Iterator for Incoming<'_> {
    type Item = io::Result<Stream>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.0.accept() {
            Err(_) if self.0.stopped.is_closed() => None,
            accepted => Some(accepted),
        }
    }
}
