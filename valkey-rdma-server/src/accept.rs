//! [`Accept`]: what a listener over TCP and one over RDMA have in common.

use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;

use tokio::io::{self, AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tracing::debug;
use valkey_rdma_transport::{DeviceKind, Listener, Monitor, TransportError};

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

impl Accept for TcpListener {
    type Stream = TcpStream;
    type Incoming = (TcpStream, SocketAddr);
    type Error = io::Error;

    fn transport(&self) -> Transport {
        Transport::Tcp
    }

    fn local_addr(&self) -> SocketAddr {
        TcpListener::local_addr(self).expect("a bound socket has an address")
    }

    fn scope(error: &io::Error) -> Scope {
        if is_shortage(error) { Scope::Shortage } else { Scope::Client }
    }

    async fn incoming(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept().await
    }

    fn open(
        &self,
        (stream, remote): (TcpStream, SocketAddr),
        assigned: Option<&Assigned>,
    ) -> io::Result<Accepted<TcpStream>> {
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
        let local = stream.local_addr()?;
        Ok(Accepted { stream, remote, local, rdma: None })
    }
}

impl Accept for Listener {
    type Stream = valkey_rdma_transport::InlineStream;
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
    ) -> Result<Accepted<Self::Stream>, TransportError> {
        if let Some(assigned) = assigned.filter(|_| self.device() == DeviceKind::Verbs) {
            request = request.shared_cq(assigned.shared_cq());
        }
        let stream = request.accept()?;
        let (remote, local, rdma) = (stream.peer_addr(), stream.local_addr(), Some(stream.monitor()));
        // A connection always reads, so the stream needs no task.
        Ok(Accepted { stream: stream.into_inline(), remote, local, rdma })
    }
}

/// Whether the process or the machine is out of descriptors or memory.
fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(ENOMEM | ENFILE | EMFILE | ENOBUFS))
}

// Linux's error numbers. The standard library does not name all of them.
const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOBUFS: i32 = 105;

#[cfg(test)]
mod tests {
    use super::*;

    /// One error of each kind, with its scope.
    #[test]
    fn only_a_shortage_makes_a_listener_rest() {
        use Scope::{Client, Shortage};
        for (code, scope) in
            [(EMFILE, Shortage), (ENFILE, Shortage), (ENOMEM, Shortage), (ENOBUFS, Shortage), (103, Client)]
        {
            let error = || io::Error::from_raw_os_error(code);
            assert_eq!(<TcpListener as Accept>::scope(&error()), scope, "{}", error());
            let device = TransportError::Device { call: "rdma_create_qp", source: error() };
            assert_eq!(Listener::scope(&device), scope, "{device}");
            // The calls that wait for the next client.
            for call in ["epoll_wait", "rdma_get_cm_event"] {
                let waiting = TransportError::Device { call, source: error() };
                assert_eq!(Listener::scope(&waiting), Shortage, "{waiting}");
            }
            let memory = TransportError::Memory { bytes: 1, limit: None, source: error() };
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
