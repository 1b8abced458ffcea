//! The async byte stream over one RDMA connection.
//!
//! From the outside in: [`Stream`] and its [halves](half) lock the [session] that they share with the
//! [driver], which is a task in the background or the [task that uses it](driven); the session joins the protocol core to
//! its [port] on the device.

mod connect;
mod crank;
mod driven;
mod driver;
mod end;
mod half;
mod io;
mod port;
mod reading;
mod session;
mod shared;
mod spin;
mod waiters;
mod writing;

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use valkey_rdma_proto::Role;

pub use self::driven::InlineStream;
use self::driver::Driver;
pub use self::half::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
use self::session::Session;
use self::shared::Shared;
use crate::config::Config;
use crate::device::DeviceConnection;
use crate::error::TransportError;
use crate::listener::Place;
use crate::stats::{Info, Stats};

/// An ordered, reliable byte stream over one RDMA connection: what a `TcpStream` is over TCP.
///
/// Made by [`Stream::connect`] or [`Listener::accept`](crate::Listener::accept). Read and write it through
/// tokio's [`AsyncRead`] and [`AsyncWrite`], or through what these cannot say: [`read_bytes`](Self::read_bytes)
/// and [`write_with`](Self::write_with). [`split`](Self::split) and [`into_split`](Self::into_split) give halves
/// for two tasks, and so does `tokio::io::split`.
///
/// - **Writing** copies into registered memory and posts it at once, as far as the peer's window and the
///   credits go; the rest follows by itself. `flush` therefore waits for nothing. Vectored writes leave as one
///   message where they fit.
/// - **Reading** copies once, out of registered memory into the caller's buffer: the peer could still rewrite the
///   bytes where they lie.
/// - **End of file** is the peer's disconnect. Everything that arrived before is read first.
/// - **Drop** closes in the background, as shutdown does.
///
/// # Shutdown, and why there is no half-close
///
/// The wire has no message for "I write no more": the one way to say it is to disconnect, which ends both
/// directions. So `shutdown`
///
/// 1. takes no more writes: they fail with `BrokenPipe` from here on;
/// 2. delivers everything written, and waits until the peer's device has acknowledged it, for
///    [`Config::close_timeout`] at most;
/// 3. [lingers](Config::linger): an accepted stream gives its peer 100 ms to disconnect first, a connected one
///    does not wait;
/// 4. disconnects.
///
/// A reader, in whatever half or task, goes on through all of that. It gets every byte that arrived before the
/// disconnect, then end of file: its own shutdown is never an error to it, unless bytes could not be delivered.
/// What the peer sends later is lost, and the peer is told. So shut down after the last reply, or, where replies
/// follow a shutdown as over TCP (a proxy that copies both ways), give them time with [`Config::linger`].
///
/// # Cancel safety
///
/// Every method here and every future of `AsyncReadExt` and `AsyncWriteExt` that is cancel safe on a `TcpStream`:
/// `read`, `read_buf`, `read_bytes`, `write`, `write_vectored`, `write_buf`, `write_with`, `flush` and `shutdown`
/// have taken, sent or begun nothing, or exactly what they return, if they are dropped before they return.
/// (`shutdown` has begun, and goes on by itself.) `read_exact`, `read_to_end`, `write_all` and their like may have
/// done a part that is not told.
pub struct Stream {
    shared: Shared,
    local: SocketAddr,
    peer: SocketAddr,
}

/// Looks at a connection from outside: cheap to clone, outlives the [`Stream`].
#[derive(Clone)]
pub struct Monitor(Shared);

impl Monitor {
    /// The counts so far.
    pub fn stats(&self) -> Stats {
        self.0.with(|session| session.stats())
    }

    /// What the connection runs on.
    pub fn info(&self) -> Info {
        self.0.with(|session| session.info())
    }
}

impl Stream {
    /// Runs the protocol over an endpoint that somebody else has made: on a device of one's own, or behind a wrapper
    /// that counts calls or injects faults. Registers the memory, posts the receives, and connects or accepts; what
    /// is read or written waits until both sides know each other's memory.
    ///
    /// # Errors
    /// Those of [`DeviceConnection::register`] and [`DeviceConnection::establish`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn over(
        endpoint: Box<dyn DeviceConnection>,
        role: Role,
        config: &Config,
    ) -> Result<Self, TransportError> {
        Self::establish(endpoint, role, config, None)
    }

    /// Starts the connection of an endpoint and the task that drives it.
    pub(crate) fn establish(
        endpoint: Box<dyn DeviceConnection>,
        role: Role,
        config: &Config,
        place: Option<Place>,
    ) -> Result<Self, TransportError> {
        let (local, peer) = (endpoint.local_addr(), endpoint.peer_addr());
        let shared = Shared::new(Session::establish(endpoint, role, config, place)?);
        tokio::spawn(Driver::new(shared.clone()));
        Ok(Self { shared, local, peer })
    }

    /// Takes announced bytes as they lie in the window, in one piece of at most `max`: one copy, one allocation of
    /// the right size. Empty at the end of file, and if `max` is 0.
    ///
    /// A piece ends where the window does, so bytes that belong together may come in two.
    ///
    /// # Errors
    /// As of reading, after everything that arrived was taken.
    ///
    /// Cancel safety: nothing is lost if the future is dropped.
    pub async fn read_bytes(&mut self, max: usize) -> std::io::Result<Bytes> {
        poll_fn(|cx| self.poll_read_bytes_shared(cx, max)).await
    }

    /// The poll form of [`read_bytes`](Self::read_bytes).
    ///
    /// # Errors
    /// As there.
    pub fn poll_read_bytes(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<std::io::Result<Bytes>> {
        self.poll_read_bytes_shared(cx, max)
    }

    /// Lends `len` free bytes of the registered send buffer to `fill`, and sends the first of them, as many as `fill`
    /// says it has filled: what it encodes is copied no more. All of it leaves as one message if window and credits
    /// allow. Waits until there is room. What the bytes hold before is not specified.
    ///
    /// `fill` runs under the connection's lock, so it must not block or use the stream. The buffer is a ring: when
    /// its end lies within the `len` bytes, `fill` gets other memory and one copy is made after all
    /// ([`copied_in`](crate::DeviceCounters::copied_in) counts it).
    ///
    /// # Errors
    /// `InvalidInput` if `len` is more than [half of the send buffer](Self::max_reservation), else as of writing.
    ///
    /// Cancel safety: if the future is dropped before it returns, `fill` was not called.
    ///
    /// # Panics
    /// If `fill` says that it has filled more than it was lent.
    pub async fn write_with(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> std::io::Result<usize> {
        self.write_with_shared(len, fill).await
    }

    /// The poll form of [`write_with`](Self::write_with). `fill` is called once, when this is ready.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> Poll<std::io::Result<usize>> {
        self.poll_write_with_shared(cx, len, fill)
    }

    /// Most bytes that [`write_with`](Self::write_with) lends: half of the send buffer. The other half may be under
    /// way.
    pub fn max_reservation(&self) -> usize {
        self.shared.with(|session| session.core.send_buffer() as usize / 2)
    }

    /// Makes the task that uses it drive it too, instead of one in the background: less work for each message, for
    /// tasks that always have a read pending. See [`InlineStream`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn into_inline(self) -> InlineStream {
        InlineStream::new(self)
    }

    /// Splits into halves that borrow the stream, for two futures of one task.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        half::split(self)
    }

    /// Splits into halves for two tasks. See [`OwnedWriteHalf`] for what dropping one does.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        half::into_split(self)
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
        self.shared.with(|session| session.stats())
    }

    /// What the connection runs on.
    pub fn info(&self) -> Info {
        self.shared.with(|session| session.info())
    }

    /// A handle that tells the same after the stream has been handed over.
    pub fn monitor(&self) -> Monitor {
        Monitor(self.shared.clone())
    }
}

impl AsyncRead for Stream {
    /// Reads announced bytes. End of file is the peer's disconnect, or our own shutdown; any other end is an
    /// error, told after everything that arrived has been read.
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        self.poll_read_shared(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        self.poll_write_shared(cx, &[buf])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        self.poll_vectored_shared(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Ready at once: what was written is on its way already.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Delivers everything written, then disconnects. An error if the connection ended before everything was
    /// acknowledged; a peer that had already left when this was called is none, unless bytes never left this side.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.poll_shutdown_shared(cx)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.with(|session| session.discard());
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
