//! The async byte stream over one RDMA connection.
//!
//! A [`Stream`] locks the [connection state](state), which joins the protocol core to the [device](device_io). A
//! [driver](drive) moves it along: a task in the background, or the task that owns the stream.

mod connect;
mod device_io;
mod direct;
mod direct_io;
mod drive;
mod poll_policy;
mod send_buffer;
mod state;
mod transfer;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use valkey_rdma_proto::work::FailureStatus;
use valkey_rdma_proto::{CloseReason, FeatureSet, Role};

pub use self::direct::Direct;
use self::drive::{Driver, OwnersDriver};
use self::state::{ConnectionState, SharedConnection};
use crate::config::Config;
use crate::device::DeviceConnection;
use crate::error::TransportError;
use crate::limiter::ConnectionPermit;
use crate::stats::{Info, Stats};

/// An ordered, reliable byte stream over one RDMA connection: what a `TcpStream` is over TCP.
///
/// Made by [`Stream::connect`] or [`Listener::accept`](crate::Listener::accept). Read and write it through tokio's
/// [`AsyncRead`] and [`AsyncWrite`], or encode straight into registered memory with [`write_with`](Self::write_with).
/// `tokio::io::split` gives halves for two tasks.
///
/// - **Writing** copies into registered memory and posts at once what the peer's window and the credits allow. The
///   connection's task sends the rest. `flush` waits for nothing. Vectored writes leave as one message where they fit.
/// - **Reading** copies once, out of registered memory into the caller's buffer, because the peer could still rewrite
///   the bytes where they lie.
/// - **End of file** is the peer's disconnect. Everything that arrived before is read first.
/// - **Drop** closes in the background, as shutdown does.
///
/// # Shutdown, and why there is no half-close
///
/// The protocol has no message for "I write no more". The only way to say so is to disconnect, which ends both
/// directions. `shutdown` therefore
///
/// 1. refuses later writes with `BrokenPipe`;
/// 2. delivers everything written, and waits for the peer's device to acknowledge it, for
///    [`Config::close_timeout`] at most;
/// 3. [lingers](Config::linger): an accepted stream gives its peer 100 ms to disconnect first, a connected one
///    does not wait;
/// 4. disconnects.
///
/// Reading goes on through all of that. The reader gets every byte that arrived before the disconnect, then end of
/// file. Its own shutdown is an error to it only if bytes could not be delivered. What the peer sends later is lost,
/// and the peer's device reports that to the peer. So shut down after the last reply. Where replies follow a shutdown,
/// as for a proxy that copies both ways, give them time with [`Config::linger`].
///
/// # Who drives it
///
/// A task in the background takes what the device reports. A [driven](Self::driven) stream has none: the task that reads and
/// writes it does that too.
///
/// If the runtime of that task shuts down first, the connection ends with [`TransportError::RuntimeEnded`], and what was not delivered
/// may be lost: keep the runtime until [`shutdown`](tokio::io::AsyncWriteExt::shutdown) has returned.
///
/// # Cancel safety
///
/// Every method here is cancel safe, and so is every future of `AsyncReadExt` and `AsyncWriteExt` that is cancel safe on
/// a `TcpStream`: `read`, `read_buf`, `write`, `write_vectored`, `write_buf`, `write_with`, `flush` and `shutdown`.
/// Dropped before they return, they have taken and sent nothing. A dropped `shutdown` goes on in the background.
/// `read_exact`, `read_to_end`, `write_all` and the like may have done a part and do not report how much.
pub struct Stream {
    shared: SharedConnection,
    /// Present while the owner drives the connection.
    owners_driver: Option<OwnersDriver>,
    local: SocketAddr,
    peer: SocketAddr,
}

/// Reads a connection's counters from outside, and starts direct transfers. Cheap to clone; may outlive the [`Stream`].
#[derive(Clone)]
pub struct Monitor(SharedConnection);

impl Monitor {
    /// The counters so far.
    pub fn stats(&self) -> Stats {
        self.0.with(|connection| connection.stats())
    }

    /// The device, the addresses and the sizes of this connection.
    pub fn info(&self) -> Info {
        self.0.with(|connection| connection.info())
    }

    /// Why the connection has ended: see [`Stream::close_error`].
    pub fn close_error(&self) -> Option<TransportError> {
        self.0.with(|connection| connection.close_error.clone())
    }
}

impl Stream {
    /// Runs the protocol over a device connection made by the caller: on the caller's own device, or behind a wrapper
    /// that counts calls or injects faults. Registers the memory, posts the receives, and connects or accepts. Reads
    /// and writes wait until both sides know each other's memory.
    ///
    /// # Errors
    /// Those of [`DeviceConnection::register`] and [`DeviceConnection::establish`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[doc(hidden)]
    pub fn over(
        device: Box<dyn DeviceConnection>,
        role: Role,
        config: &Config,
    ) -> Result<Self, TransportError> {
        Self::establish(device, role, config, None)
    }

    /// Starts the connection and the task that drives it.
    pub(crate) fn establish(
        device: Box<dyn DeviceConnection>,
        role: Role,
        config: &Config,
        permit: Option<ConnectionPermit>,
    ) -> Result<Self, TransportError> {
        let (local, peer) = (device.local_addr(), device.peer_addr());
        let shared = SharedConnection::new(ConnectionState::establish(device, role, config, permit)?);
        tokio::spawn(Driver::new(shared.clone()));
        Ok(Self { shared, owners_driver: None, local, peer })
    }

    /// Lets `fill` write into `len` free bytes of the registered send buffer, and sends the first of them: as many as
    /// `fill` returns. This saves the copy of an ordinary write. The bytes leave as one message if window and credits
    /// allow. Waits until there is room. The initial content of the bytes is unspecified.
    ///
    /// `fill` runs under the connection's lock, so it must not block or use the stream. The buffer is a ring: if its end
    /// lies within the `len` bytes, `fill` gets other memory, and one copy is made
    /// ([`copied_in`](crate::DeviceCounters::copied_in) counts it).
    ///
    /// # Errors
    /// `InvalidInput` if `len` is more than [`max_reservation`](Self::max_reservation); otherwise the errors of a write.
    ///
    /// Cancel safety: if the future is dropped before it returns, `fill` was not called.
    ///
    /// # Panics
    /// If `fill` returns more than `len`.
    pub async fn write_with(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> io::Result<usize> {
        let mut fill = Some(fill);
        poll_fn(|cx| self.poll_write_with(cx, len, &mut |room| fill.take().map_or(0, |fill| fill(room))))
            .await
    }

    /// The poll form of [`write_with`](Self::write_with). Calls `fill` once, when it is ready.
    ///
    /// # Errors
    /// Same errors as [`write_with`](Self::write_with).
    ///
    /// # Panics
    /// If `fill` returns more than `len`.
    pub fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> Poll<io::Result<usize>> {
        let written = self.poll_driving(cx, |connection, cx| {
            let too_long = |most: usize| (len > most).then_some(Poll::Ready(Err(most)));
            if let Some(refused) = too_long(connection.max_reservation) {
                return refused;
            }
            connection.grow_for(len);
            // The send buffer may have failed to grow.
            if let Some(refused) = too_long(connection.max_reservation) {
                return refused;
            }
            connection.poll_write_with(cx, len as u32, fill).map(Ok)
        });
        written.map(|written| match written {
            Ok(written) => written.ok_or_else(|| self.broken_pipe()),
            Err(most) => {
                let text = format!("{len} bytes are more than the send buffer takes at once, {most} bytes");
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
        })
    }

    /// The largest `len` of [`write_with`](Self::write_with): half of the [send buffer](Config::send_buffer), and less if that is
    /// between 128 and 192 KiB. The other half may be in flight. It becomes less if the rest of the send buffer is needed and cannot be pinned.
    pub fn max_reservation(&self) -> usize {
        self.shared.with(|connection| connection.max_reservation)
    }

    /// Waits until it is known which features both sides use (spec clauses F-5 to F-7). At once on a connected stream, and on one
    /// accepted with none [on offer](Config::offers). Otherwise the peer's choice or its first bytes say so; a peer that sends
    /// neither is waited for.
    ///
    /// # Errors
    /// Those of a read, and `UnexpectedEof` if the peer has disconnected.
    ///
    /// Cancel safety: cancel safe.
    pub async fn agreed(&mut self) -> io::Result<FeatureSet> {
        match poll_fn(|cx| self.poll_driving(cx, ConnectionState::poll_agreed)).await {
            Some(features) => Ok(features),
            None => Err(self.end_of_file().err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Lets the task that reads and writes the stream drive it, instead of a task in the background. A message then wakes one
    /// task and not two, and an answer leaves before the device is armed again. Everything works as before, cancel safety
    /// included.
    ///
    /// In return the connection makes progress only while it is polled: nothing else posts receives, notices the peer's
    /// disconnect, or sends what the peer's window had no room for. So this is for tasks that **always have a read pending**
    /// while they wait for anything, as a server's connection and a client's multiplexer have. Before the connection goes
    /// idle, let it [rest](Self::resting). Use it from one task, or at least with one waker: the halves of `tokio::io::split`
    /// in two tasks would take each other's wake-ups.
    ///
    /// A dropped stream closes in the background, driven or not.
    ///
    /// # Panics
    /// Outside of a tokio runtime. A driven stream also panics if it is read outside of one; writing and shutdown use the
    /// runtime of this call. So does what drives the stream in the background afterwards: keep that runtime.
    #[must_use]
    pub fn driven(mut self) -> Self {
        if self.owners_driver.is_none() {
            self.owners_driver = Some(OwnersDriver::new(self.shared.clone()));
        }
        self
    }

    /// Drives a [driven](Self::driven) stream without reading: for an owner that has no room for more bytes, and waits for something else,
    /// such as a [direct transfer](Self::direct). Without effect on other streams.
    pub fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = &mut self.owners_driver {
            driver.drive(cx);
        }
    }

    /// Undoes [`driven`](Self::driven): a background task drives the connection from now on.
    #[must_use]
    pub fn resting(mut self) -> Self {
        self.owners_driver = None;
        self
    }

    /// Whether the task that owns the stream drives it.
    pub fn is_driven(&self) -> bool {
        self.owners_driver.is_some()
    }

    /// This side's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// The counters so far.
    pub fn stats(&self) -> Stats {
        self.shared.with(|connection| connection.stats())
    }

    /// The device, the addresses and the sizes of this connection.
    pub fn info(&self) -> Info {
        self.shared.with(|connection| connection.info())
    }

    /// Why the connection has ended; [`TransportError::Lost`] with [`CloseReason::Local`] after this side's own shutdown. `None` while
    /// it has not. Bytes that arrived before the end can still be read. The errors of reads and writes contain the same error.
    pub fn close_error(&self) -> Option<TransportError> {
        self.shared.with(|connection| connection.close_error.clone())
    }

    /// Whether this side has ended the connection, without time for the peer's last bytes ([`Config::linger`]).
    #[cfg(feature = "tls")]
    pub(crate) fn ended_at_once(&self) -> bool {
        let is_local = matches!(self.close_error(), Some(TransportError::Lost(CloseReason::Local)));
        is_local && self.shared.with(|connection| !connection.core.lingers())
    }

    /// A handle for [`stats`](Self::stats) and [`info`](Self::info) that stays valid when the stream is moved or dropped.
    pub fn monitor(&self) -> Monitor {
        Monitor(self.shared.clone())
    }

    fn poll_write_slices(&mut self, cx: &mut Context<'_>, bufs: &[&[u8]]) -> Poll<io::Result<usize>> {
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        let written = self.poll_driving(cx, |connection, cx| connection.poll_write(cx, bufs));
        written.map(|written| match written {
            0 => Err(self.broken_pipe()),
            written => Ok(written),
        })
    }

    /// Polls. If that is pending and the owner drives the connection, drives it and polls again, because driving may have
    /// brought what was missing.
    fn poll_driving<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut ConnectionState, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let mut polled = self.shared.with(|connection| poll(connection, cx));
        if polled.is_pending()
            && let Some(driver) = &mut self.owners_driver
        {
            driver.drive(cx);
            polled = self.shared.with(|connection| poll(connection, cx));
        }
        polled
    }

    /// What a reader gets at the end: end of file after the peer's disconnect and after our own shutdown.
    fn end_of_file(&self) -> io::Result<()> {
        match self.close_error() {
            None | Some(TransportError::Lost(CloseReason::Peer | CloseReason::Local)) => Ok(()),
            Some(error) => Err(io_error(error, io::ErrorKind::ConnectionReset)),
        }
    }

    /// What a writer gets after the end.
    fn broken_pipe(&self) -> io::Error {
        match self.close_error() {
            None | Some(TransportError::Lost(CloseReason::Local)) => {
                io::Error::new(io::ErrorKind::BrokenPipe, TransportError::Closed)
            }
            Some(error) => io_error(error, io::ErrorKind::BrokenPipe),
        }
    }
}

/// Why a connection has ended, as the error of a read or a write. `peer_gone`: the kind to use when the peer disconnected.
fn io_error(error: TransportError, peer_gone: io::ErrorKind) -> io::Error {
    let kind = match &error {
        TransportError::Refused { .. }
        | TransportError::Rejected { .. }
        | TransportError::Unreachable { .. }
        | TransportError::ClosedInHandshake { .. } => io::ErrorKind::NotConnected,
        TransportError::Protocol(_) => io::ErrorKind::InvalidData,
        TransportError::Lost(CloseReason::Peer) => peer_gone,
        TransportError::Lost(
            CloseReason::HandshakeTimeout { .. }
            | CloseReason::NoAnswer { .. }
            | CloseReason::IdleTimeout { .. }
            | CloseReason::StallTimeout { .. }
            | CloseReason::KeepaliveTimeout { .. }
            | CloseReason::LocalUnfinished { .. }
            | CloseReason::Failed(FailureStatus::RetryExceeded),
        ) => io::ErrorKind::TimedOut,
        _ => io::ErrorKind::ConnectionReset,
    };
    io::Error::new(kind, error)
}

impl AsyncRead for Stream {
    /// Reads announced bytes. End of file is the peer's disconnect, or our own shutdown. Any other end is an error,
    /// returned after everything that arrived has been read.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let more = match &mut this.owners_driver {
            Some(driver) => driver.poll_read(cx, buf),
            None => this.shared.with(|connection| connection.poll_read(cx, buf)),
        };
        more.map(|more| if more { Ok(()) } else { this.end_of_file() })
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_slices(cx, &[buf])
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
        self.get_mut().poll_write_slices(cx, &slices[..taken])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Always ready: writes are posted at once.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Delivers everything written, then disconnects. Returns an error if the connection ended before everything was
    /// acknowledged. If the peer had left before this call, that is an error only if bytes never left this side.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let ended = this.poll_driving(cx, ConnectionState::poll_shutdown);
        ended.map(|(error, lost)| match error {
            TransportError::Lost(CloseReason::Local) => Ok(()),
            TransportError::Lost(CloseReason::Peer) if lost == 0 => Ok(()),
            error => Err(io_error(error, io::ErrorKind::BrokenPipe)),
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // A background task drives it while it closes.
        self.owners_driver = None;
        self.shared.with(|connection| connection.discard());
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
