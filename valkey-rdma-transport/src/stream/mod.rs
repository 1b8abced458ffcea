//! The async byte stream over one RDMA connection.

mod connect;
mod driver;
mod inner;
mod shared;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use valkey_rdma_proto::work::FailureStatus;
use valkey_rdma_proto::{CloseReason, Role};

use self::driver::Driver;
use self::inner::{End, Inner};
use self::shared::Shared;
use crate::config::Config;
use crate::device::Endpoint;
use crate::error::TransportError;
use crate::listener::Place;
use crate::stats::{Info, Stats};

/// An ordered, reliable byte stream over one RDMA connection: what a `TcpStream` is over TCP.
///
/// Made by [`Stream::connect`] or [`Listener::accept`](crate::Listener::accept). Read and write it through
/// tokio's [`AsyncRead`] and [`AsyncWrite`]; `tokio::io::split` gives halves for two tasks.
///
/// - **Writing** copies into registered memory and posts it at once, as far as the peer's window and the
///   credits go; the rest follows by itself. `flush` therefore waits for nothing. Vectored writes leave as one
///   message where they fit.
/// - **Shutdown** delivers everything written, waits until the peer's device has acknowledged it, and then
///   disconnects. The wire has no half-close: shut down after the last reply.
/// - **End of file** is the peer's disconnect. Everything that arrived before is read first.
/// - **Drop** closes in the background, as shutdown does.
///
/// Cancel safety: every future of `AsyncReadExt` and `AsyncWriteExt` that is cancel safe on a `TcpStream` is so
/// here.
pub struct Stream {
    shared: Shared,
    local: SocketAddr,
    peer: SocketAddr,
    /// Shutdown began while the connection was whole.
    shutting_down: bool,
}

/// Looks at a connection from outside: cheap to clone, outlives the [`Stream`].
#[derive(Clone)]
pub struct Monitor(Shared);

impl Monitor {
    /// The counts so far.
    pub fn stats(&self) -> Stats {
        self.0.with(|inner| inner.stats())
    }

    /// What the connection runs on.
    pub fn info(&self) -> Info {
        self.0.with(|inner| inner.info())
    }
}

impl Stream {
    /// Starts the connection of an endpoint and the task that drives it.
    pub(crate) fn establish(
        endpoint: Box<dyn Endpoint>,
        role: Role,
        config: &Config,
        place: Option<Place>,
    ) -> Result<Self, TransportError> {
        let (local, peer) = (endpoint.local_addr(), endpoint.peer_addr());
        let shared = Shared::new(Inner::establish(endpoint, role, config, place)?);
        tokio::spawn(Driver::new(shared.clone()));
        Ok(Self { shared, local, peer, shutting_down: false })
    }

    /// This side's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// The counts so far.
    pub fn stats(&self) -> Stats {
        self.shared.with(|inner| inner.stats())
    }

    /// What the connection runs on.
    pub fn info(&self) -> Info {
        self.shared.with(|inner| inner.info())
    }

    /// A handle that tells the same after the stream has been handed over.
    pub fn monitor(&self) -> Monitor {
        Monitor(self.shared.clone())
    }

    fn poll_write_bufs(&self, cx: &mut Context<'_>, bufs: &[&[u8]]) -> Poll<io::Result<usize>> {
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        let (written, end) = self.shared.with(|inner| (inner.poll_write(cx, bufs), inner.end()));
        Poll::Ready(match (ready!(written), end) {
            (0, None | Some(End::Closed(CloseReason::Local))) => {
                Err(io::Error::new(io::ErrorKind::BrokenPipe, TransportError::Closed))
            }
            (0, Some(end)) => Err(self.error(end, io::ErrorKind::BrokenPipe)),
            (written, _) => Ok(written),
        })
    }

    /// What an end means to somebody who wanted more. `peer_gone` is the kind for the peer's own disconnect.
    fn error(&self, end: End, peer_gone: io::ErrorKind) -> io::Error {
        let kind = match end {
            End::NeverConnected(_) => io::ErrorKind::NotConnected,
            End::Closed(CloseReason::Peer) => peer_gone,
            End::Closed(CloseReason::Protocol(_)) => io::ErrorKind::InvalidData,
            End::Closed(
                CloseReason::HandshakeTimeout
                | CloseReason::IdleTimeout
                | CloseReason::KeepaliveTimeout { .. }
                | CloseReason::LocalUnfinished { .. }
                | CloseReason::Failed(FailureStatus::RetryExceeded),
            ) => io::ErrorKind::TimedOut,
            End::Closed(_) => io::ErrorKind::ConnectionReset,
        };
        io::Error::new(kind, connect::describe(end, &self.shared))
    }
}

impl AsyncRead for Stream {
    /// Reads announced bytes. End of file is the peer's disconnect, or our own shutdown; any other end is an
    /// error, told after everything that arrived has been read.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (more, end) = self.shared.with(|inner| (inner.poll_read(cx, buf), inner.end()));
        Poll::Ready(match (ready!(more), end) {
            (true, _) | (false, None | Some(End::Closed(CloseReason::Peer | CloseReason::Local))) => Ok(()),
            (false, Some(end)) => Err(self.error(end, io::ErrorKind::ConnectionReset)),
        })
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_bufs(cx, &[buf])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A fixed number on the stack; the caller writes the rest next.
        let mut slices = [&[][..]; 64];
        let taken = slices.len().min(bufs.len());
        for (slice, buf) in slices.iter_mut().zip(bufs) {
            *slice = buf;
        }
        self.poll_write_bufs(cx, &slices[..taken])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Ready at once: what was written is on its way already.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Delivers everything written, then disconnects. An error if the connection ended before everything was
    /// acknowledged; a peer that had already left when this was called is none, unless bytes never left this side.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (whole, end, fate) = self.shared.with(|inner| {
            let whole = inner.end().is_none();
            inner.close();
            (whole, inner.poll_end(cx), inner.fate())
        });
        self.shutting_down |= whole;
        let lost = fate.unsent + if self.shutting_down { fate.unknown } else { 0 };
        Poll::Ready(match ready!(end) {
            End::Closed(CloseReason::Local) => Ok(()),
            End::Closed(CloseReason::Peer) if lost == 0 => Ok(()),
            end => Err(self.error(end, io::ErrorKind::BrokenPipe)),
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.with(|inner| inner.discard());
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("local", &self.local).field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Monitor").field(&self.info()).finish()
    }
}
