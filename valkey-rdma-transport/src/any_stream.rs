//! [`AnyStream`]: the byte stream of a connection, over whichever transport it has.

mod ending;
#[cfg(feature = "tls")]
mod read_ahead;
mod socket;
#[cfg(feature = "tls")]
pub(crate) mod tls_stream;

#[cfg(feature = "tls")]
use std::convert::Infallible;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

#[cfg(feature = "tls")]
pub use self::tls_stream::TlsStream;

use crate::raw::Access;
use crate::tls::info::TlsInfo;
#[cfg(unix)]
use crate::unix_socket::UnixSocket;
use crate::{Direct, DirectMemory, DirectSlice, Exposed, Monitor, Stream, TransportError};

/// The byte stream of a connection, for programs that do not care which transport carries it.
#[non_exhaustive]
pub enum AnyStream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    #[cfg(unix)]
    Unix(UnixSocket),
    /// Over RDMA or the emulated device.
    Device(Stream),
    /// TLS over one of the others.
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream>),
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
        self.with_device(Stream::driven)
    }

    /// Undoes [`driven`](Self::driven): a background task drives the device again.
    #[must_use]
    pub fn resting(self) -> Self {
        self.with_device(Stream::resting)
    }

    /// Drives a driven device without reading: see [`Stream::drive`]. Without effect on other transports.
    pub fn drive(&mut self, cx: &mut Context<'_>) {
        match self {
            Self::Device(stream) => stream.drive(cx),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.below_mut().drive(cx),
            _ => {}
        }
    }

    fn with_device(self, change: fn(Stream) -> Stream) -> Self {
        match self {
            Self::Device(stream) => Self::Device(change(stream)),
            #[cfg(feature = "tls")]
            Self::Tls(mut stream) => {
                let Ok(()) = stream.change_below(|below| Ok::<_, Infallible>(below.with_device(change)));
                Self::Tls(stream)
            }
            other => other,
        }
    }

    /// The stream whose bytes the system or the device carries: the one below TLS, or this one.
    fn carrier(&self) -> &Self {
        match self {
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.below(),
            other => other,
        }
    }

    /// The stream of the device, if there is one.
    fn device(&self) -> Option<&Stream> {
        match self.carrier() {
            Self::Device(stream) => Some(stream),
            _ => None,
        }
    }

    /// Whether the task that owns the stream drives its device.
    #[must_use]
    pub fn is_driven(&self) -> bool {
        self.device().is_some_and(Stream::is_driven)
    }

    /// Reads the transport's counters from outside; `None` if there is no device.
    #[must_use]
    pub fn monitor(&self) -> Option<Monitor> {
        self.device().map(Stream::monitor)
    }

    /// Why the connection has ended, as [`Stream::close_error`] returns it; `None` if there is no device.
    #[must_use]
    pub fn close_error(&self) -> Option<TransportError> {
        self.device().and_then(Stream::close_error)
    }

    /// Whether memory can be exposed to the server: see [`Stream::may_expose`]. False if there is no device.
    #[must_use]
    pub fn may_expose(&self) -> bool {
        self.device().is_some_and(Stream::may_expose)
    }

    /// Registers memory before it is exposed: see [`Stream::register`].
    ///
    /// # Errors
    /// Same errors as [`expose`](Self::expose).
    pub fn register(&self, memory: &DirectMemory, access: Access) -> Result<(), TransportError> {
        self.device().ok_or(TransportError::DirectOff)?.register(memory, access)
    }

    /// Exposes memory to the server: see [`Stream::expose`]. Under TLS, the bytes of direct transfers are plain.
    ///
    /// # Errors
    /// Same errors as [`Stream::expose`]; [`TransportError::DirectOff`] if there is no device.
    pub fn expose(&self, slice: DirectSlice, access: Access) -> Result<Exposed, TransportError> {
        self.device().ok_or(TransportError::DirectOff)?.expose(slice, access)
    }

    /// Starts direct transfers: see [`Stream::direct`]. `None` also if there is no device.
    #[must_use]
    pub fn direct(&self) -> Option<Direct> {
        self.device().and_then(Stream::direct)
    }

    /// What the two sides have agreed on, if the stream is encrypted.
    #[must_use]
    pub fn tls(&self) -> Option<Arc<TlsInfo>> {
        match self {
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Some(stream.info().clone()),
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
            #[cfg(feature = "tls")]
            Self::Tls(stream) => f.debug_tuple("Tls").field(stream.below()).finish(),
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
            #[cfg(feature = "tls")]
            AnyStream::Tls($stream) => $call,
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
