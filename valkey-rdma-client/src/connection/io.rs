//! [`Socket`]: the byte stream of a connection, over any transport.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use valkey_rdma_transport::{InlineStream, Stream};

/// The stream of a connection.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Device(Stream),
    /// An RDMA stream that is driven by the task that reads it.
    Inline(InlineStream),
    /// A stream supplied by the program.
    Other(Box<dyn Io>),
}

impl Socket {
    /// Lets the task that owns the stream drive the device. That task must always have a read pending, and only its
    /// waker may be used.
    pub(crate) fn driven(self) -> Self {
        match self {
            Self::Device(stream) => Self::Inline(stream.into_inline()),
            other => other,
        }
    }
}

/// Both directions of a byte stream.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Io for S {}

macro_rules! each {
    ($socket:expr, $stream:ident => $call:expr) => {
        match $socket.get_mut() {
            Socket::Tcp($stream) => $call,
            Socket::Device($stream) => $call,
            Socket::Inline($stream) => $call,
            Socket::Other($stream) => $call,
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Socket {
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
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Device(stream) => stream.is_write_vectored(),
            Self::Inline(stream) => stream.is_write_vectored(),
            Self::Other(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}
