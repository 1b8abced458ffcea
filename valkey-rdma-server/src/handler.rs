//! What a user of the library implements, and what it is told about the peer.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

pub(crate) use valkey_rdma_resp::Protocol;
use valkey_rdma_resp::{Command, Reply};
use valkey_rdma_transport::{DeviceKind, Monitor};

use crate::push::Pusher;

/// Answers commands. One handler serves all connections; what belongs to one of them lives in its `Session`.
///
/// ```
/// use valkey_rdma_server::{Command, Handler, Peer, Reply};
///
/// /// Counts the commands of each connection.
/// struct Counting;
///
/// impl Handler for Counting {
///     type Session = i64;
///
///     fn session(&self, _peer: &Peer) -> i64 {
///         0
///     }
///
///     async fn call(&self, peer: &mut Peer, seen: &mut i64, command: Command) -> Reply {
///         *seen += 1;
///         if command.is("QUIT") {
///             peer.close_after_reply();
///         }
///         Reply::Integer(*seen)
///     }
/// }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// State of one connection, dropped when it ends.
    type Session: Send + 'static;

    /// Called once for each connection, before its first command.
    fn session(&self, peer: &Peer) -> Self::Session;

    /// Runs one command and answers it.
    ///
    /// Commands of one connection run one after the other, in the order sent; those of different
    /// connections run side by side. While the future is pending the replies before it are sent, and the
    /// commands after it are received, within [`Config::input_limit`](crate::Config::input_limit). Nothing of that
    /// happens while the handler computes without awaiting: an RDMA peer that goes on sending then finds no receives
    /// posted before long. Long work belongs into `tokio::task::spawn_blocking`.
    ///
    /// **Cancel safety**: the future is dropped in the middle if the connection breaks or the peer closes it while the future
    /// is pending, or when the server stops and [`Config::drain_timeout`](crate::Config::drain_timeout) has passed.
    /// A TCP client that closes only its sending side looks like one that is gone, and is taken for one, as by Valkey.
    /// A panic ends this connection only.
    fn call(
        &self,
        peer: &mut Peer,
        session: &mut Self::Session,
        command: Command,
    ) -> impl Future<Output = Reply> + Send;

    /// Whether the peer may use the memory that [`Config`](crate::Config) allows. Asked before each command. Default: yes.
    ///
    /// A handler that wants a password says no until it was given. Until then Valkey's limits for clients that have not logged
    /// in hold: 10 words in a command, 16 KiB in a word, 1 MiB of commands waiting. Who exceeds them is closed.
    fn trusts(&self, _session: &Self::Session) -> bool {
        true
    }
}

/// For who wants to keep a hand on the handler while it serves.
impl<H: Handler> Handler for Arc<H> {
    type Session = H::Session;

    fn session(&self, peer: &Peer) -> Self::Session {
        H::session(self, peer)
    }

    fn call(
        &self,
        peer: &mut Peer,
        session: &mut Self::Session,
        command: Command,
    ) -> impl Future<Output = Reply> + Send {
        H::call(self, peer, session, command)
    }

    fn trusts(&self, session: &Self::Session) -> bool {
        H::trusts(self, session)
    }
}

/// The other side of a connection, and how to treat it.
pub struct Peer {
    id: u64,
    transport: Transport,
    remote: SocketAddr,
    local: SocketAddr,
    rdma: Option<Monitor>,
    protocol: Protocol,
    closing: bool,
    never_idle: bool,
    pusher: Pusher,
}

impl Peer {
    /// A peer that no server has accepted, for testing handlers.
    pub fn new(id: u64, transport: Transport, remote: SocketAddr, local: SocketAddr) -> Self {
        Self {
            id,
            transport,
            remote,
            local,
            rdma: None,
            protocol: Protocol::Resp2,
            closing: false,
            never_idle: false,
            pusher: Pusher::new(),
        }
    }

    pub(crate) fn with_rdma(self, rdma: Option<Monitor>) -> Self {
        Self { rdma, ..self }
    }

    /// Number of this connection, unique in this server, counted from 1.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What the connection runs on.
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

    /// Device, window sizes and counters of an RDMA connection. `None` for TCP.
    pub fn rdma(&self) -> Option<&Monitor> {
        self.rdma.as_ref()
    }

    /// The protocol replies are sent in. RESP2 until the handler changes it.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Sends this reply and all later ones in `protocol`: what `HELLO` asks for.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Closes the connection once the reply to this command has been delivered. Later commands are not run.
    pub fn close_after_reply(&mut self) {
        self.closing = true;
    }

    /// Whether [`Config::idle_timeout`](crate::Config::idle_timeout) is not for this connection: for peers that wait for
    /// messages and have nothing to say. `false` until the handler changes it.
    pub fn set_never_idle(&mut self, never: bool) {
        self.never_idle = never;
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
    /// The scheme of URLs that lead here.
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
