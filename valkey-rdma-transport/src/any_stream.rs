//! [`AnyStream`]: the byte stream of a connection, over whichever transport it has.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use crate::{Monitor, Stream, TransportError};

/// The byte stream of a connection, for programs that do not care which transport carries it.
#[non_exhaustive]
pub enum AnyStream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    #[cfg(unix)]
    Unix(UnixStream),
    /// Over RDMA or the emulated device.
    Device(Stream),
    /// Over a stream of the program.
    Other(Box<dyn Duplex>),
}

/// Both directions of a byte stream.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

impl AnyStream {
    /// Lets the task that owns the stream drive the device: see [`Stream::driven`]. Without effect on other transports.
    #[must_use]
    pub fn driven(self) -> Self {
        match self {
            Self::Device(stream) => Self::Device(stream.driven()),
            other => other,
        }
    }

    /// Undoes [`driven`](Self::driven): a background task drives the device again.
    #[must_use]
    pub fn resting(self) -> Self {
        match self {
            Self::Device(stream) => Self::Device(stream.resting()),
            other => other,
        }
    }

    /// Whether the task that owns the stream drives its device.
    #[must_use]
    pub fn is_driven(&self) -> bool {
        matches!(self, Self::Device(stream) if stream.is_driven())
    }

    /// Reads the transport's counters from outside; `None` if there is no device.
    #[must_use]
    pub fn monitor(&self) -> Option<Monitor> {
        match self {
            Self::Device(stream) => Some(stream.monitor()),
            _ => None,
        }
    }

    /// Why the connection has ended, as [`Stream::close_error`] returns it; `None` if there is no device.
    #[must_use]
    pub fn close_error(&self) -> Option<TransportError> {
        match self {
            Self::Device(stream) => stream.close_error(),
            _ => None,
        }
    }
}

impl fmt::Debug for AnyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(stream) => stream.fmt(f),
            #[cfg(unix)]
            Self::Unix(stream) => stream.fmt(f),
            Self::Device(stream) => stream.fmt(f),
            Self::Other(_) => f.write_str("Other"),
        }
    }
}

/// Evaluates `$call` with the stream of whichever transport it is.
macro_rules! each {
    ($any:expr, $stream:ident => $call:expr) => {
        match $any {
            AnyStream::Tcp($stream) => $call,
            #[cfg(unix)]
            AnyStream::Unix($stream) => $call,
            AnyStream::Device($stream) => $call,
            AnyStream::Other($stream) => $call,
        }
    };
}

impl AsyncRead for AnyStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for AnyStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        each!(self, stream => stream.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(cx))
    }
}
