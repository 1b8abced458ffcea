//! [`Listener`]: a place where a server accepts clients, over TCP or over RDMA. [`BindError`]: why it cannot.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tracing::debug;
use valkey_rdma_transport::address::{self, listen_advice};
use valkey_rdma_transport::tls::{TlsAcceptor, TlsError};
use valkey_rdma_transport::{
    AnyStream, Config as TransportConfig, DeviceKind, FeatureSet, Listener as RdmaListener, Monitor,
    Request as RdmaRequest, SharedCq, TransportError, is_out_of_descriptors,
};

use crate::peer::Transport;
use crate::workers::Assigned;

/// A bound listener.
pub(crate) struct Listener {
    socket: Socket,
    /// `None`: its connections are not encrypted.
    tls: Option<TlsAcceptor>,
}

pub(crate) enum Socket {
    Tcp(TcpListener),
    Rdma(Box<RdmaListener>),
    /// These accepts, last first, and a panic when there are none left.
    #[cfg(test)]
    Scripted(Vec<Result<Accepted, AcceptError>>),
}

/// A client that asks to connect. Dropping it rejects the client.
pub(crate) enum Request {
    Tcp(TcpStream, SocketAddr),
    Rdma(Box<RdmaRequest>, DeviceKind),
    #[cfg(test)]
    Scripted(Accepted),
}

/// A connection, and its two addresses.
pub(crate) struct Accepted {
    pub(crate) stream: AnyStream,
    pub(crate) remote: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) rdma: Option<Monitor>,
}

/// An address that a server listens on. `Display` is a client's URL: `valkey://127.0.0.1:6379`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    /// The transport of its connections.
    pub transport: Transport,
    /// True if its connections are encrypted. Then the scheme of the URL is `valkeys`, `rdmas` or `emulateds`.
    pub tls: bool,
    /// The address, with the real port if port 0 was asked for.
    pub addr: SocketAddr,
}

impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secure = if self.tls { "s" } else { "" };
        write!(f, "{}{secure}://{}", self.transport.scheme(), address::authority(self.addr))
    }
}

impl Socket {
    /// Listens on an address; port 0 takes a free port.
    pub(crate) async fn bind(
        transport: Transport,
        addr: SocketAddr,
        config: &TransportConfig,
    ) -> Result<Self, BindError> {
        Ok(match transport {
            Transport::Tcp => Self::Tcp(listen_tcp(addr).map_err(|source| BindError::Tcp { addr, source })?),
            Transport::Rdma(device) => Self::Rdma(Box::new(RdmaListener::bind(device, addr, config).await?)),
        })
    }

    /// A listener whose connections are encrypted if there is an acceptor. Otherwise they are offered direct transfers, if asked for: these are
    /// never encrypted.
    pub(crate) fn into_listener(self, tls: Option<TlsAcceptor>, direct: bool) -> Listener {
        let offered = match tls {
            Some(_) => FeatureSet::TLS,
            None if direct => FeatureSet::DIRECT,
            None => FeatureSet::NONE,
        };
        let socket = match self {
            // Without any, those of its settings.
            Self::Rdma(listener) if offered != FeatureSet::NONE => {
                Self::Rdma(Box::new(listener.offers(offered)))
            }
            other => other,
        };
        Listener { socket, tls }
    }
}

impl Listener {
    /// Where it listens.
    pub(crate) fn listening(&self) -> Listening {
        let (transport, addr) = match &self.socket {
            Socket::Tcp(listener) => {
                (Transport::Tcp, listener.local_addr().expect("a bound socket has an address"))
            }
            Socket::Rdma(listener) => (Transport::Rdma(listener.device()), listener.local_addr()),
            #[cfg(test)]
            Socket::Scripted(_) => (Transport::Tcp, ([127, 0, 0, 1], 1).into()),
        };
        Listening { transport, tls: self.tls.is_some(), addr }
    }

    /// What encrypts its connections.
    pub(crate) fn tls(&self) -> Option<&TlsAcceptor> {
        self.tls.as_ref()
    }

    /// Waits for the next client.
    ///
    /// **Cancel safety**: no client is lost.
    pub(crate) async fn request(&mut self) -> Result<Request, AcceptError> {
        match &mut self.socket {
            Socket::Tcp(listener) => {
                let (stream, remote) = listener.accept().await.map_err(AcceptError::of_tcp)?;
                Ok(Request::Tcp(stream, remote))
            }
            Socket::Rdma(listener) => {
                let request = listener.request().await?;
                Ok(Request::Rdma(Box::new(request), listener.device()))
            }
            #[cfg(test)]
            Socket::Scripted(accepts) => accepts.pop().expect("an accept too many").map(Request::Scripted),
        }
    }
}

impl Request {
    /// Accepts the client, in the runtime of the thread that it is assigned to, if there is one. From here on the connection costs memory.
    pub(crate) fn accept(
        self,
        assigned: Option<&Assigned>,
        tcp_keepalive: Option<Duration>,
    ) -> Result<Accepted, AcceptError> {
        match self {
            Self::Tcp(stream, remote) => {
                let moves = assigned.is_some();
                accept_tcp(stream, remote, moves, tcp_keepalive).map_err(AcceptError::of_tcp)
            }
            Self::Rdma(request, device) => {
                let shared = assigned.filter(|_| device == DeviceKind::Verbs).map(Assigned::shared_cq);
                Ok(accept_rdma(*request, shared)?)
            }
            #[cfg(test)]
            Self::Scripted(accepted) => Ok(accepted),
        }
    }
}

/// `moves`: the runtime that waits for its bytes is from now on the one of this call.
fn accept_tcp(
    stream: TcpStream,
    remote: SocketAddr,
    moves: bool,
    keepalive: Option<Duration>,
) -> io::Result<Accepted> {
    let stream = if moves { TcpStream::from_std(stream.into_std()?)? } else { stream };
    // Replies that belong together are written at once; waiting for more would only delay them. This fails if the peer
    // is gone already; its connection will notice.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, peer = %remote, "cannot set TCP_NODELAY");
    }
    if let Some(after) = keepalive
        && let Err(error) = set_keepalive(&stream, after)
    {
        debug!(%error, peer = %remote, "cannot set TCP keepalive");
    }
    let local = stream.local_addr()?;
    Ok(Accepted { stream: AnyStream::Tcp(stream), remote, local, rdma: None })
}

fn accept_rdma(request: RdmaRequest, shared_cq: Option<&SharedCq>) -> Result<Accepted, TransportError> {
    let request = match shared_cq {
        Some(shared) => request.shared_cq(shared),
        None => request,
    };
    let stream = request.accept()?;
    let (remote, local, rdma) = (stream.peer_addr(), stream.local_addr(), Some(stream.monitor()));
    // A connection always reads, so the stream needs no task.
    Ok(Accepted { stream: AnyStream::Device(stream.driven()), remote, local, rdma })
}

/// A server cannot listen on one of its addresses.
///
/// `Debug` is the text of `Display` with its causes, because that is what a `main` that returns the error prints.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// No address was given.
    #[error("a server needs at least one address to listen on")]
    NoListener,
    /// A URL to listen on is wrong.
    #[error("cannot listen on \"{url}\": {reason}")]
    Url {
        /// As given, without scheme and login if there is a login.
        url: String,
        /// What is wrong with it.
        reason: Cow<'static, str>,
    },
    /// The host of a URL to listen on has no address.
    #[error("cannot listen on {host}: the name does not resolve")]
    Resolve {
        /// The host.
        host: String,
        /// The system's error.
        source: io::Error,
    },
    /// The operating system refused a TCP address.
    #[error("cannot listen on {addr} (TCP){}", listen_advice(*.addr, .source))]
    Tcp {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The threads of [`Builder::threads`](crate::Builder::threads) could not be started.
    #[error("cannot start {count} threads")]
    Threads {
        /// How many were asked for.
        count: usize,
        /// The system's error.
        source: io::Error,
    },
    /// The RDMA device refused an address, or there is no such device.
    #[error(transparent)]
    Rdma(#[from] TransportError),
    /// A certificate or a private key of an encrypted listener cannot be used. The text names the file.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl fmt::Debug for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut cause = self.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// A failed accept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcceptError {
    /// Over RDMA. Without descriptors, the text is the same over TCP.
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("accept failed")]
    Tcp(#[source] io::Error),
}

/// The scope of a failed accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// This client only.
    Client,
    /// A shortage of descriptors or memory: the next accept would fail too.
    Shortage,
    /// The listener has ended.
    Listener,
}

impl AcceptError {
    pub(crate) fn of_tcp(source: io::Error) -> Self {
        if is_out_of_descriptors(&source) {
            Self::Transport(TransportError::of_call("accept", source))
        } else {
            Self::Tcp(source)
        }
    }

    /// Whether clients after this one are affected.
    pub(crate) fn scope(&self) -> Scope {
        match self {
            Self::Tcp(error) if is_shortage(error) => Scope::Shortage,
            Self::Transport(error) if error.is_of_event_wait() => Scope::Shortage,
            Self::Transport(
                TransportError::Memory { .. }
                | TransportError::Descriptors { .. }
                | TransportError::SystemDescriptors { .. },
            ) => Scope::Shortage,
            Self::Transport(TransportError::Device { source, .. }) if is_shortage(source) => Scope::Shortage,
            Self::Transport(TransportError::DeviceRemoved | TransportError::Closed) => Scope::Listener,
            Self::Tcp(_) | Self::Transport(_) => Scope::Client,
        }
    }
}

/// Listens on a TCP address; port 0 takes a free port.
fn listen_tcp(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A port may be taken again while connections of its last listener linger.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// Makes the kernel probe a peer that has sent nothing for `after`. Three probes without an answer, a third of that time apart,
/// end the connection (valkey `src/anet.c`, `anetKeepAlive`).
fn set_keepalive(stream: &TcpStream, after: Duration) -> io::Result<()> {
    let after = after.clamp(SHORTEST_KEEPALIVE, LONGEST_KEEPALIVE);
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, after)?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(after.as_secs() / 3).max(SHORTEST_KEEPALIVE))?;
    Ok(sockopt::set_tcp_keepcnt(stream, 3)?)
}

/// The shortest and the longest time that Linux takes for keepalives: 2^15 - 1 seconds.
const SHORTEST_KEEPALIVE: Duration = Duration::from_secs(1);
const LONGEST_KEEPALIVE: Duration = Duration::from_secs(32_767);

/// Connections that the kernel keeps until they are accepted: Valkey's `tcp-backlog`. The kernel's `net.core.somaxconn` may be lower.
const BACKLOG: u32 = 511;

/// Whether the process or the machine is out of descriptors or memory.
fn is_shortage(error: &io::Error) -> bool {
    is_out_of_descriptors(error) || matches!(error.raw_os_error(), Some(ENOMEM | ENOBUFS))
}

// Linux's error numbers. The standard library does not name all of them.
const ENOMEM: i32 = 12;
const ENOBUFS: i32 = 105;

#[cfg(test)]
mod tests;
