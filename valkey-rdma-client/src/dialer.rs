//! [`Dialer`]: each step from an endpoint to a connection, for programs that speak RESP themselves or watch the steps.

use std::fmt;
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use valkey_rdma_transport::{AnyStream, Monitor};

use crate::client::Client;
use crate::config::Config;
use crate::endpoint::{Endpoint, EndpointError};
use crate::error::{Error, LostCause};
use crate::events::ServerEvents;
use crate::link::{Connector, Finding, RawConnection, StepReport, Whereabouts};
use crate::server::Server;
use crate::stats::ConnectionInfo;
use valkey_rdma_transport::sync::{Mutex, lock};

/// Opens byte streams to one server: for proxies, and for other RESP clients.
///
/// It resolves, tries each address, keeps the endpoint's timeout and falls back to TCP as a [`Client`] does. [`dial`](Self::dial) leaves
/// the login to the caller: user, password, database and protocol of the [`Endpoint`]. [`dial_logged_in`](Self::dial_logged_in) applies them.
///
/// ```no_run
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// use valkey_rdma_client::{Config, Dialer};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let dialer = Dialer::new("rdma://10.0.0.7:6379", &Config::default())?;
/// let mut stream = dialer.dial().await?;
/// stream.write_all(b"PING\r\n").await?;
/// let mut reply = [0; 7];
/// stream.read_exact(&mut reply).await?;
/// assert_eq!(&reply, b"+PONG\r\n");
/// # Ok(())
/// # }
/// ```
pub struct Dialer {
    connector: Connector,
}

impl Dialer {
    /// Of `config`, the keepalive and stall timeouts and the settings of the transport are used, and by a login the name. A
    /// [client](Self::into_client) uses all of it.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if the URL or endpoint is invalid.
    pub fn new<E>(endpoint: E, config: &Config) -> Result<Self, Error>
    where
        E: TryInto<Endpoint>,
        Error: From<E::Error>,
    {
        let endpoint = endpoint.try_into()?;
        endpoint.check_direct()?;
        Self::following(endpoint, config)
    }

    /// As [`new`](Self::new), and follows [Sentinels](Endpoint::sentinels): each call of [`dial`](Self::dial) connects to the address that most of
    /// them report as that of the primary. What they report may be old, so the caller asks for its role (`ROLE`) and
    /// [confirms](ByteStream::confirm_primary) it. Reading a stream fails as soon as they report another address.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn following(endpoint: Endpoint, config: &Config) -> Result<Self, Error> {
        endpoint.check()?;
        Ok(Self { connector: Server::connector_for(endpoint, config.clone()) })
    }

    /// Connects to the Unix socket at `path`. Of `endpoint`, the login, database, protocol and timeout are used.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn at_socket(path: impl Into<PathBuf>, endpoint: Endpoint, config: &Config) -> Result<Self, Error> {
        endpoint.check()?;
        endpoint.check_direct()?;
        Ok(Self { connector: Connector::at_socket(path.into(), endpoint, config.clone()) })
    }

    /// Calls `observer` with each step of connecting when it has ended, whether it worked or not: by the task that connects, which must
    /// not be blocked. The steps at one address come together, when that address has accepted or failed. Replaces an earlier observer.
    #[must_use]
    pub fn observed(mut self, observer: impl Fn(&StepReport<'_>) + Send + Sync + 'static) -> Self {
        self.connector.observer = Some(Arc::new(observer));
        self
    }

    /// The server.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.connector.endpoint
    }

    /// Connects. Drop the stream of an RDMA connection only when it owes no replies: Valkey 8.1.1 crashes otherwise.
    ///
    /// # Errors
    /// [`Error::Connect`] if no connection could be made within the endpoint's timeout.
    ///
    /// # Cancel safety
    /// An RDMA connect that is dropped is completed in the background and used by the next call.
    pub async fn dial(&self) -> Result<ByteStream, Error> {
        let raw = self.connector.dial().await?;
        let located = self.connector.whereabouts(&raw);
        Ok(ByteStream::new(raw, located))
    }

    /// Connects, logs in and selects the database, as a [`Client`] does: no reply is outstanding, and the next bytes are the caller's.
    /// With Sentinels, the server has the role of a primary.
    ///
    /// # Errors
    /// [`Error::Connect`] with the step that failed, or if all took longer than the endpoint's timeout.
    ///
    /// # Cancel safety
    /// As [`dial`](Self::dial). A connection whose login was not complete is closed.
    pub async fn dial_logged_in(&self) -> Result<ByteStream, Error> {
        let raw = self.connector.dial_logged_in().await?;
        let located = self.connector.whereabouts(&raw);
        let mut stream = ByteStream::new(raw, located);
        stream.confirm_primary();
        Ok(stream)
    }

    /// Connects a client of this server, as [`Client::connect_with`] does. The observer also receives the steps of later connects.
    ///
    /// # Errors
    /// [`Error::Connect`] with the step that failed; [`Error::Endpoint`] for a cluster, which has several servers.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the attempt and closes what was opened.
    pub async fn into_client(self) -> Result<Client, Error> {
        if self.endpoint().is_cluster() {
            return Err(EndpointError::ClusterHere.into());
        }
        Ok(Server::start(self.connector, None, ServerEvents::alone()).await?.into())
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("endpoint", &self.connector.endpoint).finish_non_exhaustive()
    }
}

/// A connection of a [`Dialer`]: bytes to and from the server, over any transport.
pub struct ByteStream {
    socket: AnyStream,
    info: Arc<ConnectionInfo>,
    monitor: Option<Monitor>,
    located: Option<Whereabouts>,
    /// Completes when the Sentinels report another primary.
    moved: Option<Mutex<Finding<'static, ()>>>,
    has_moved: bool,
}

impl ByteStream {
    fn new(mut raw: RawConnection, located: Option<Whereabouts>) -> Self {
        let (info, monitor) = (raw.info.clone(), raw.monitor.clone());
        let moved = located.as_ref().map(|located| Mutex::new(located.next_move()));
        Self { socket: raw.take_socket(), info, monitor, located, moved, has_moved: false }
    }

    /// Reports that the server has the role of a primary: streams to other addresses end, and so does this one once a
    /// primary elsewhere is known. Without Sentinels it has no effect.
    pub fn confirm_primary(&mut self) {
        if let Some(located) = &self.located {
            located.locator.found(&located.address);
            self.moved = Some(Mutex::new(located.moved()));
        }
    }

    /// Lets the task that owns the stream drive the RDMA device, which costs less than a background task. That task must always
    /// have a read pending, and only its waker may be used. Has no effect over TCP.
    #[must_use]
    pub fn driven(mut self) -> Self {
        self.socket = self.socket.driven();
        self
    }

    /// The stream itself, of the type that its transport has. It does not notice that the Sentinels report another primary.
    #[must_use]
    pub fn into_stream(self) -> AnyStream {
        self.socket
    }

    /// Describes the connection: transport, device, windows, and why it is not RDMA.
    #[must_use]
    pub fn info(&self) -> &Arc<ConnectionInfo> {
        &self.info
    }

    /// Reads the transport's counters from outside; `None` on TCP.
    #[must_use]
    pub fn monitor(&self) -> Option<&Monitor> {
        self.monitor.as_ref()
    }
}

impl fmt::Debug for ByteStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteStream").field("info", &self.info).finish_non_exhaustive()
    }
}

impl AsyncRead for ByteStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.moved.as_ref().is_some_and(|moved| lock(moved).as_mut().poll(cx).is_ready()) {
            (self.moved, self.has_moved) = (None, true);
        }
        if self.has_moved {
            return Poll::Ready(Err(io::Error::other(LostCause::Moved)));
        }
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
