//! [`Peer`]: the client of one connection.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use valkey_rdma_resp::Protocol;
use valkey_rdma_transport::tls::TlsInfo;
use valkey_rdma_transport::{DeviceKind, Monitor};

use crate::direct::{Direct, Transfers};
use crate::push::Pusher;

/// The client of one connection, and how the server treats it.
pub struct Peer {
    id: u64,
    transport: Transport,
    remote: SocketAddr,
    local: SocketAddr,
    rdma: Option<Box<Rdma>>,
    tls: Option<Arc<TlsInfo>>,
    protocol: Protocol,
    closing: bool,
    never_idle: bool,
    pusher: Pusher,
    stop: CancellationToken,
    /// The name that the client gave with `CLIENT SETNAME`; empty if none.
    pub(crate) name: Bytes,
    /// The password it must give.
    pub(crate) password: Option<Bytes>,
    pub(crate) authenticated: bool,
}

/// What only connections over RDMA have. Apart, because the futures that pass a peer on take its place several times.
pub(crate) struct Rdma {
    pub(crate) monitor: Monitor,
    pub(crate) transfers: Transfers,
}

impl Peer {
    /// Creates a peer that no server has accepted, for tests of handlers.
    pub fn new(id: u64, transport: Transport, remote: SocketAddr, local: SocketAddr) -> Self {
        Self {
            id,
            transport,
            remote,
            local,
            rdma: None,
            tls: None,
            protocol: Protocol::Resp2,
            closing: false,
            never_idle: false,
            pusher: Pusher::new(),
            stop: CancellationToken::new(),
            name: Bytes::new(),
            password: None,
            authenticated: true,
        }
    }

    pub(crate) fn with_rdma(self, rdma: Option<Rdma>) -> Self {
        Self { rdma: rdma.map(Box::new), ..self }
    }

    pub(crate) fn with_tls(self, tls: Option<Arc<TlsInfo>>) -> Self {
        Self { tls, ..self }
    }

    pub(crate) fn with_password(self, password: Option<Bytes>) -> Self {
        Self { authenticated: password.is_none(), password, ..self }
    }

    pub(crate) fn with_stop(self, stop: CancellationToken) -> Self {
        Self { stop, ..self }
    }

    /// Number of this connection, unique in this server, counted from 1.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The transport of the connection.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// The peer's address.
    pub fn addr(&self) -> SocketAddr {
        self.remote
    }

    /// Our address on this connection.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Device, window sizes and counters of an RDMA connection. `None` for TCP. For transfers, use [`direct`](Self::direct): those that
    /// begin at the monitor are in no limit, and can go on after the reply.
    pub fn rdma(&self) -> Option<&Monitor> {
        self.rdma.as_ref().map(|rdma| &rdma.monitor)
    }

    /// Moves values between this server and memory that the client exposes, for the command that runs. `None` unless the client has asked for
    /// direct transfers, and the server [offers](crate::Builder::direct) them.
    pub fn direct(&mut self) -> Option<Direct<'_>> {
        let Rdma { monitor, transfers } = self.rdma.as_deref_mut()?;
        Some(Direct::new(monitor.direct()?, transfers))
    }

    /// Whether the handler has dropped a direct transfer before it was complete.
    pub(crate) fn has_unfinished_transfer(&self) -> bool {
        self.rdma.as_ref().is_some_and(|rdma| rdma.transfers.unfinished)
    }

    /// Version, cipher and the client's certificates of an encrypted connection. `None` if it is not encrypted.
    ///
    /// The certificates were verified if [`ServerTls::with_client_ca`](crate::ServerTls::with_client_ca) was given; the list is empty if the
    /// client has shown none.
    pub fn tls(&self) -> Option<&TlsInfo> {
        self.tls.as_deref()
    }

    /// The name that the client gave with `CLIENT SETNAME` or `HELLO`. Empty if it gave none, or if the handler answers these
    /// commands instead of the library ([`Handler::basics`](crate::Handler::basics)).
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The protocol of replies. RESP2 at first; `HELLO` changes it.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Sends this reply and all later ones in `protocol`.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Closes the connection once the reply to this command has been delivered. Later commands are not run.
    pub fn close_after_reply(&mut self) {
        self.closing = true;
    }

    /// Exempts this connection from [`Limits::idle_timeout`](crate::Limits::idle_timeout), for peers that wait for messages
    /// and send nothing. `false` until the handler changes it.
    pub fn set_never_idle(&mut self, never: bool) {
        self.never_idle = never;
    }

    /// Completes when the server stops. A command that waits for something should wait for this too, and answer: otherwise
    /// [`Server::shutdown`](crate::Server::shutdown) waits for it, for at most
    /// [`Limits::drain_timeout`](crate::Limits::drain_timeout).
    ///
    /// ```
    /// # use valkey_rdma_server::{Peer, Reply};
    /// # async fn example(peer: &mut Peer, news: &tokio::sync::Notify) -> Reply {
    /// tokio::select! {
    ///     () = news.notified() => Reply::OK,
    ///     () = peer.stopping() => Reply::error("UNBLOCKED the server is shutting down"),
    /// }
    /// # }
    /// ```
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + use<> {
        self.stop.clone().cancelled_owned()
    }

    /// A handle that sends messages to this connection, from anywhere and at any time.
    ///
    /// ```
    /// # use valkey_rdma_server::{Peer, Reply};
    /// # fn example(peer: &Peer) {
    /// let pusher = peer.pusher();
    /// tokio::spawn(async move {
    ///     pusher.push(Reply::Push(vec![Reply::bulk("news"), Reply::Integer(1)]));
    /// });
    /// # }
    /// ```
    pub fn pusher(&self) -> Pusher {
        self.pusher.clone()
    }

    pub(crate) fn is_never_idle(&self) -> bool {
        self.never_idle
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("id", &self.id)
            .field("transport", &self.transport)
            .field("addr", &self.remote)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

/// What carries the bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// TCP.
    Tcp,
    /// Valkey over RDMA, on this kind of device.
    Rdma(DeviceKind),
}

impl Transport {
    /// The scheme of a client's URL: `valkey`, `rdma` or `emulated`.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Tcp => "valkey",
            Self::Rdma(device) => device.scheme(),
        }
    }
}

/// `tcp`, or the name of the device: `verbs`, `emulated`.
impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.write_str("tcp"),
            Self::Rdma(device) => device.fmt(f),
        }
    }
}
