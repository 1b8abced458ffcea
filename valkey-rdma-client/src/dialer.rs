//! [`Dialer`]: byte streams to a server, for programs that speak RESP themselves.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use valkey_rdma_transport::{AnyStream, Monitor};

use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::error::{Error, LostCause};
use crate::link::{Connector, Finding, RawConnection, Whereabouts};
use crate::server::Server;
use crate::stats::ConnectionInfo;
use valkey_rdma_transport::sync::{Mutex, lock};

/// Opens byte streams to one server: for proxies, and for other RESP clients.
///
/// It resolves, connects, keeps the endpoint's timeout and falls back to TCP as a [`Client`](crate::Client) does. It does not log
/// in: user, password, database and protocol of the [`Endpoint`] are left to the caller.
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
    /// Of `config`, the keepalive and stall timeouts are used.
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
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use valkey_rdma_transport::{Config as TransportConfig, DeviceKind, Listener};

    use super::*;
    use crate::endpoint::Transport;

    /// Only the caller's bytes pass, in both directions.
    async fn carries_only_these_bytes(
        mut server: impl AsyncRead + AsyncWrite + Unpin,
        mut stream: ByteStream,
    ) {
        let mut received = [0; 5];
        stream.write_all(b"hello").await.expect("open");
        server.read_exact(&mut received).await.expect("open");
        assert_eq!(&received, b"hello");
        server.write_all(b"world").await.expect("open");
        stream.read_exact(&mut received).await.expect("open");
        assert_eq!(&received, b"world");
    }

    #[tokio::test]
    async fn a_dialed_stream_does_not_log_in() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("valkey://user:password@{}/3", listener.local_addr().expect("bound"));
        let dialer = Dialer::new(url.as_str(), &Config::default()).expect("a good URL");
        let (accepted, dialed) = tokio::join!(listener.accept(), dialer.dial());
        let stream = dialed.expect("connects");
        assert_eq!(stream.info().transport, Transport::Tcp);
        carries_only_these_bytes(accepted.expect("a client").0, stream).await;
    }

    #[tokio::test]
    async fn a_device_is_dialed_until_its_windows_are_known() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let mut listener =
            Listener::bind(DeviceKind::Emulated, any, &TransportConfig::default()).await.expect("a port");
        let url = format!("emulated://user:password@{}", listener.local_addr());
        let dialer = Dialer::new(url.as_str(), &Config::default()).expect("a good URL");
        let (accepted, dialed) = tokio::join!(listener.accept(), dialer.dial());
        let stream = dialed.expect("connects");
        assert!(stream.info().tx_window.is_some() && stream.monitor().is_some());
        carries_only_these_bytes(accepted.expect("a client"), stream.driven()).await;
    }
}
