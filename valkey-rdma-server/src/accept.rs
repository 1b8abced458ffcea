//! [`Accept`]: what a listener over TCP and one over RDMA have in common.

use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{self, AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tracing::debug;
use valkey_rdma_transport::{DeviceKind, Listener, Monitor, TransportError, is_out_of_descriptors};

use crate::limits::Limits;
use crate::peer::Transport;
use crate::workers::Assigned;

/// A bound listener of some kind.
pub(crate) trait Accept: Send + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// A client that asks to connect. Dropping it rejects the client.
    type Incoming: Send;
    type Error: Error + Send + 'static;

    fn transport(&self) -> Transport;

    fn local_addr(&self) -> SocketAddr;

    /// Whether clients after this one are affected by an error of the next two.
    fn scope(error: &Self::Error) -> Scope;

    /// Waits for the next client.
    fn incoming(&mut self) -> impl Future<Output = Result<Self::Incoming, Self::Error>> + Send;

    /// Accepts it, in the runtime of the thread that it is assigned to, if there is one. From here on the connection costs memory.
    fn open(
        &self,
        incoming: Self::Incoming,
        assigned: Option<&Assigned>,
        limits: &Limits,
    ) -> Result<Accepted<Self::Stream>, Self::Error>;
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

/// A stream and its two addresses.
pub(crate) struct Accepted<S> {
    pub(crate) stream: S,
    pub(crate) remote: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) rdma: Option<Monitor>,
}

/// A failed accept over TCP.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TcpError {
    /// No descriptors are left: the text is that of a listener over RDMA.
    #[error(transparent)]
    Descriptors(TransportError),
    #[error("accept failed")]
    Accept(#[from] io::Error),
}

impl TcpError {
    fn of_accept(source: io::Error) -> Self {
        if is_out_of_descriptors(&source) {
            Self::Descriptors(TransportError::of_call("accept", source))
        } else {
            Self::Accept(source)
        }
    }
}

/// Listens on a TCP address; port 0 takes a free port.
pub(crate) fn listen_tcp(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A port may be taken again while connections of its last listener linger.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

impl Accept for TcpListener {
    type Stream = TcpStream;
    type Incoming = (TcpStream, SocketAddr);
    type Error = TcpError;

    fn transport(&self) -> Transport {
        Transport::Tcp
    }

    fn local_addr(&self) -> SocketAddr {
        TcpListener::local_addr(self).expect("a bound socket has an address")
    }

    fn scope(error: &TcpError) -> Scope {
        match error {
            TcpError::Accept(error) if !is_shortage(error) => Scope::Client,
            _ => Scope::Shortage,
        }
    }

    async fn incoming(&mut self) -> Result<(TcpStream, SocketAddr), TcpError> {
        self.accept().await.map_err(TcpError::of_accept)
    }

    fn open(
        &self,
        (stream, remote): (TcpStream, SocketAddr),
        assigned: Option<&Assigned>,
        limits: &Limits,
    ) -> Result<Accepted<TcpStream>, TcpError> {
        let stream = match assigned {
            // The runtime that waits for its bytes changes.
            Some(_) => TcpStream::from_std(stream.into_std()?)?,
            None => stream,
        };
        // Replies that belong together are written at once; waiting for more would only delay them. This fails if the peer
        // is gone already; its connection will notice.
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, peer = %remote, "cannot set TCP_NODELAY");
        }
        if let Some(after) = limits.tcp_keepalive
            && let Err(error) = set_keepalive(&stream, after)
        {
            debug!(%error, peer = %remote, "cannot set TCP keepalive");
        }
        let local = stream.local_addr()?;
        Ok(Accepted { stream, remote, local, rdma: None })
    }
}

impl Accept for Listener {
    type Stream = valkey_rdma_transport::Stream;
    type Incoming = valkey_rdma_transport::Request;
    type Error = TransportError;

    fn transport(&self) -> Transport {
        Transport::Rdma(self.device())
    }

    fn local_addr(&self) -> SocketAddr {
        Listener::local_addr(self)
    }

    fn scope(error: &TransportError) -> Scope {
        match error {
            error if error.is_of_event_wait() => Scope::Shortage,
            TransportError::Memory { .. }
            | TransportError::Descriptors { .. }
            | TransportError::SystemDescriptors { .. } => Scope::Shortage,
            TransportError::Device { source, .. } if is_shortage(source) => Scope::Shortage,
            TransportError::DeviceRemoved | TransportError::Closed => Scope::Listener,
            _ => Scope::Client,
        }
    }

    async fn incoming(&mut self) -> Result<Self::Incoming, TransportError> {
        self.request().await
    }

    fn open(
        &self,
        mut request: Self::Incoming,
        assigned: Option<&Assigned>,
        _limits: &Limits,
    ) -> Result<Accepted<Self::Stream>, TransportError> {
        if let Some(assigned) = assigned.filter(|_| self.device() == DeviceKind::Verbs) {
            request = request.shared_cq(assigned.shared_cq());
        }
        let stream = request.accept()?;
        let (remote, local, rdma) = (stream.peer_addr(), stream.local_addr(), Some(stream.monitor()));
        // A connection always reads, so the stream needs no task.
        Ok(Accepted { stream: stream.driven(), remote, local, rdma })
    }
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
mod tests {
    use super::*;

    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;

    #[test]
    fn a_shortage_of_descriptors_says_what_to_do() {
        for (code, advice) in [(EMFILE, "raise it with `ulimit -n`"), (ENFILE, "sysctl fs.file-max")] {
            let text = TcpError::of_accept(io::Error::from_raw_os_error(code)).to_string();
            assert!(text.contains("for accept") && text.contains(advice), "{text}");
        }
    }

    /// A client whose machine has vanished must not hold its place for ever.
    #[tokio::test]
    async fn connections_are_probed_unless_that_is_turned_off() {
        let mut listener = listen_tcp(([127, 0, 0, 1], 0).into()).unwrap();
        let addr = Accept::local_addr(&listener);
        for (limits, expected) in [
            (Limits::default(), Some((300, 100))),
            (Limits::default().tcp_keepalive(Duration::from_millis(1)), Some((1, 1))),
            (Limits::default().tcp_keepalive(Duration::MAX), Some((32_767, 10_922))),
            (Limits::default().tcp_keepalive(None), None),
        ] {
            let _client = TcpStream::connect(addr).await.unwrap();
            let incoming = listener.incoming().await.unwrap();
            let stream = Accept::open(&listener, incoming, None, &limits).unwrap().stream;
            assert_eq!(sockopt::socket_keepalive(&stream).unwrap(), expected.is_some(), "{limits:?}");
            if let Some(expected) = expected {
                let times = [sockopt::tcp_keepidle(&stream), sockopt::tcp_keepintvl(&stream)];
                let [idle, interval] = times.map(|time| time.unwrap().as_secs());
                assert_eq!((idle, interval), expected, "{limits:?}");
            }
        }
    }

    /// One error of each kind, with its scope.
    #[test]
    fn only_a_shortage_makes_a_listener_rest() {
        use Scope::{Client, Shortage};
        for (code, scope) in
            [(EMFILE, Shortage), (ENFILE, Shortage), (ENOMEM, Shortage), (ENOBUFS, Shortage), (103, Client)]
        {
            let error = || io::Error::from_raw_os_error(code);
            assert_eq!(<TcpListener as Accept>::scope(&TcpError::of_accept(error())), scope, "{}", error());
            let device = TransportError::Device { call: "rdma_create_qp", source: error().into() };
            assert_eq!(Listener::scope(&device), scope, "{device}");
            // The calls that wait for the next client.
            for call in ["epoll_wait", "rdma_get_cm_event"] {
                let waiting = TransportError::Device { call, source: error().into() };
                assert_eq!(Listener::scope(&waiting), Shortage, "{waiting}");
            }
            let memory = TransportError::Memory { bytes: 1, limit: None, source: error().into() };
            assert_eq!(Listener::scope(&memory), Shortage);
        }
        let other_device = TransportError::WrongDevice {
            peer: ([127, 0, 0, 1], 1).into(),
            wanted: "a".into(),
            found: "b".into(),
        };
        assert_eq!(Listener::scope(&other_device), Client);
        assert_eq!(Listener::scope(&TransportError::DeviceRemoved), Scope::Listener);
    }
}
