//! The byte stream of a connection, over any transport.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use valkey_rdma_transport::{InlineStream, Monitor, Stream};

use super::lock;

/// A connected byte stream.
#[derive(Debug)]
pub(crate) enum Wire {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Over RDMA or the emulated device.
    Device(Stream),
    /// The same, driven by the task that uses it.
    Inline(InlineStream),
}

impl Wire {
    /// Looks at the transport's counters; `None` where there are none.
    pub(crate) fn monitor(&self) -> Option<Monitor> {
        match self {
            Wire::Device(stream) => Some(stream.monitor()),
            Wire::Inline(stream) => Some(stream.as_ref().monitor()),
            Wire::Tcp(_) | Wire::Unix(_) => None,
        }
    }

    /// The same, driven by the one task that uses it and is never idle, until [`resting`](Self::resting).
    pub(super) fn driven(self) -> Wire {
        match self {
            Wire::Device(stream) => Wire::Inline(stream.into_inline()),
            other => other,
        }
    }

    /// The same, driven by a background task again.
    pub(super) fn resting(self) -> Wire {
        match self {
            Wire::Inline(stream) => Wire::Device(stream.into_stream()),
            other => other,
        }
    }
}

/// Calls the same method of whichever stream it is.
macro_rules! each {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Wire::Tcp($stream) => $call,
            Wire::Unix($stream) => $call,
            Wire::Device($stream) => $call,
            Wire::Inline($stream) => $call,
        }
    };
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

/// A wire lent out, to the client library for its login, and taken back afterwards. Once it is back, the borrower sees
/// the end of the stream.
#[derive(Debug, Clone)]
pub(super) struct Lent(Arc<Mutex<Option<Wire>>>);

impl Lent {
    pub(super) fn new(wire: Wire) -> Lent {
        Lent(Arc::new(Mutex::new(Some(wire))))
    }

    /// Takes the wire back.
    pub(super) fn take_back(&self) -> Option<Wire> {
        lock(&self.0).take()
    }

    fn with<T>(&self, ended: T, call: impl FnOnce(Pin<&mut Wire>) -> T) -> T {
        match &mut *lock(&self.0) {
            Some(wire) => call(Pin::new(wire)),
            None => ended,
        }
    }
}

impl AsyncRead for Lent {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.with(Poll::Ready(Ok(())), |wire| wire.poll_read(cx, buf))
    }
}

impl AsyncWrite for Lent {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.with(Poll::Ready(Ok(0)), |wire| wire.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(Poll::Ready(Ok(())), |wire| wire.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The borrower's end is not the wire's.
        Poll::Ready(Ok(()))
    }
}
