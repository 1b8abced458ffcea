//! The listener.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::Stream;
use super::reactor::{handle, wait};
use super::stream::as_io_error;
use crate::config::Config;
use crate::device::DeviceKind;
use crate::sync::{Mutex, lock};

/// Accepts RDMA connections: what `std::net::TcpListener` is over TCP.
pub struct Listener {
    listener: Mutex<crate::Listener>,
    addr: SocketAddr,
    handle: Handle,
    /// Never has permits. Closed by [`stop`](Self::stop).
    stopped: Semaphore,
}

impl Listener {
    /// Listens on `addr`; port 0 takes a free one.
    ///
    /// # Errors
    /// As for [`Listener::bind`](crate::Listener::bind); the [`TransportError`](crate::TransportError) is the source.
    pub fn bind(kind: DeviceKind, addr: SocketAddr, config: &Config) -> io::Result<Self> {
        let handle = handle()?;
        let bound = wait(&handle, None, crate::Listener::bind(kind, addr, config));
        let listener = bound.expect("without a deadline it waits").map_err(as_io_error)?;
        Ok(Self {
            addr: listener.local_addr(),
            listener: Mutex::new(listener),
            handle,
            stopped: Semaphore::new(0),
        })
    }

    /// Waits for the next connection. Threads that wait at once take turns.
    ///
    /// # Errors
    /// As for [`Listener::accept`](crate::Listener::accept), and after [`stop`](Self::stop).
    pub fn accept(&self) -> io::Result<Stream> {
        Stream::new(self.accept_async()?, self.handle.clone())
    }

    /// Waits for the next connection, as it is before it becomes a blocking one.
    pub(crate) fn accept_async(&self) -> io::Result<crate::Stream> {
        let mut listener = lock(&self.listener);
        let accepted = async {
            let mut accept = pin!(listener.accept());
            let mut stopped = pin!(self.stopped.acquire());
            poll_fn(|cx| match stopped.as_mut().poll(cx) {
                Poll::Ready(_) => Poll::Ready(Err(io::Error::other("the listener was stopped"))),
                Poll::Pending => accept.as_mut().poll(cx).map_err(as_io_error),
            })
            .await
        };
        wait(&self.handle, None, accepted).expect("without a deadline it waits")
    }

    /// Makes every [`accept`](Self::accept) fail: those that wait in other threads, and later ones.
    pub fn stop(&self) {
        self.stopped.close();
    }

    /// Accepts connections one after another, without end; after [`stop`](Self::stop), it returns errors.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }

    /// The address it listens on, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}

/// The connections of a [`Listener`].
pub struct Incoming<'a>(&'a Listener);

impl Iterator for Incoming<'_> {
    type Item = io::Result<Stream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.accept())
    }
}
