//! [`Builder`]: where a server listens, and how much its clients may use.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use valkey_rdma_transport::{Config as TransportConfig, DeviceKind, Listener as RdmaListener};

use crate::accept::Shared;
use crate::address::Address;
use crate::handler::Handler;
use crate::limits::Limits;
use crate::listener::BindError;
use crate::server::Server;
use crate::workers::Workers;

/// The addresses and the limits of a server that has not been started.
pub struct Builder<H> {
    handler: H,
    listen_on: Vec<Address>,
    limits: Limits,
    password: Option<Bytes>,
    threads: usize,
    direct: bool,
}

/// Without URLs and password.
impl<H> fmt::Debug for Builder<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("limits", &self.limits)
            .field("threads", &self.threads)
            .field("direct", &self.direct)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Builds a server that runs `handler`'s commands.
    pub fn builder<H: Handler>(handler: H) -> Builder<H> {
        Builder {
            handler,
            listen_on: Vec::new(),
            limits: Limits::default(),
            password: None,
            threads: 0,
            direct: false,
        }
    }
}

impl<H: Handler> Builder<H> {
    /// Listens on the address of a URL, which is the one that clients connect to: `rdma://10.0.0.7:6379`, `valkey://0.0.0.0:6379` (or
    /// `redis://`) for TCP, `emulated://127.0.0.1:0` with cargo feature `emulated`. A name must be one of this machine. Port 0 takes a
    /// free port, no port means 6379. Options on devices: `rx_size=` and `send_buffer=` in bytes, 65536 to 16777216,
    /// `poll=event|busy|adaptive`, `device=NAME`.
    ///
    /// TLS, with cargo feature `tls`: `valkeys://` (or `rediss://`), `rdmas://`, `emulateds://`. Their options name files in PEM, with `%20`
    /// for a space: `cert=FILE` and `key=FILE`, the certificate and its private key; `client_ca=FILE`, the issuers of clients' certificates;
    /// `client_auth=no|optional|required`, whether clients need one (default: `required` with `client_ca`, `no` without). The certificate can
    /// be given with [`Address::tls`] instead. [`Server::reload_tls`] reads the files again. Over RDMA, TLS is an extension of this project:
    /// only its clients can connect.
    ///
    /// A wrong URL is an error of [`start`](Self::start).
    pub fn listen(mut self, address: impl Into<Address>) -> Self {
        self.listen_on.push(address.into());
        self
    }

    /// Listens on `addr` over TCP. Port 0 takes a free port. Up to 511 connections wait until they are accepted (Valkey's
    /// `tcp-backlog`); for another number, bring a [listener](Self::tcp_listener).
    pub fn tcp(self, addr: SocketAddr) -> Self {
        self.listen(Address::tcp(addr))
    }

    /// Listens on `addr` over RDMA, on a device of this kind. Port 0 takes a free port. The ports of a real RDMA device are
    /// independent of TCP's; the emulated device uses TCP ports.
    pub fn rdma(self, device: DeviceKind, addr: SocketAddr, config: &TransportConfig) -> Self {
        self.listen(Address::rdma(device, addr, config))
    }

    /// Accepts the connections of a listener that is bound already, for example one with injected faults.
    pub fn listener(self, listener: RdmaListener) -> Self {
        self.listen(listener)
    }

    /// Accepts the connections of a TCP listener that is bound already: with options of your own, or passed by systemd (make
    /// it with [`TcpListener::from_std`]).
    pub fn tcp_listener(self, listener: TcpListener) -> Self {
        self.listen(listener)
    }

    /// Replaces the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Serves the connections on `count` threads of the server. Default 0: on the runtime that [`start`](Self::start) is
    /// called in.
    ///
    /// Each connection stays on the thread that has the fewest when it arrives, with the handler's calls for it. Over kernel
    /// verbs, the connections of a thread share completion queues ([`SharedCq`](valkey_rdma_transport::SharedCq)). Accepting
    /// goes on in the runtime of `start`, so that it delays no command.
    ///
    /// Use it if one thread's processor is the limit: one thread less than there are processors is a good start. Each
    /// thread's runtime is tokio's of one thread, which wakes no other thread for a command as the default runtime does. A call
    /// of the handler that blocks its thread delays the other connections of that thread. Tasks that the handler starts with
    /// `tokio::spawn` end with the server.
    ///
    /// ```
    /// # use valkey_rdma_server::{Reply, Server, handler_fn};
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let handler = handler_fn(|_command| async { Ok(Reply::OK) });
    /// let server = Server::builder(handler).tcp("127.0.0.1:0".parse().unwrap()).threads(2).start().await?;
    /// # server.shutdown().await;
    /// # Ok::<_, valkey_rdma_server::BindError>(())
    /// # }).unwrap();
    /// ```
    pub fn threads(mut self, count: usize) -> Self {
        self.threads = count;
        self
    }

    /// Offers direct transfers ([`Peer::direct`](crate::Peer::direct)) to the clients of all RDMA listeners without TLS, also those that are
    /// added later. Not where TLS is used: the values are not encrypted. Default: no. Only clients of this project ask for them (spec, area D).
    pub fn direct(mut self, offer: bool) -> Self {
        self.direct = offer;
        self
    }

    /// Requires this password, given with `AUTH` or `HELLO` as Valkey's clients do. Until then all commands but these,
    /// `QUIT` and `RESET` are answered with `-NOAUTH`, and the limits of [`Handler::trusts`] for clients that have not logged in
    /// hold. There is one user, `default`. The handler sees no command before the login.
    /// The login itself is a [basic command](Handler::basics): if the handler takes `AUTH` and `HELLO` away, no client can log in.
    pub fn password(mut self, password: impl Into<Bytes>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Listens on all addresses, and then begins to serve.
    ///
    /// # Errors
    ///
    /// [`BindError`] if one of the addresses cannot be listened on, or a thread cannot be started. The listeners before it are
    /// closed again.
    pub async fn start(self) -> Result<Server, BindError> {
        if self.listen_on.is_empty() {
            return Err(BindError::NoListener);
        }
        let drain_timeout = self.limits.drain_timeout;
        let stop = CancellationToken::new();
        let (workers, threads) = Workers::start(self.threads)
            .map_err(|source| BindError::Threads { count: self.threads, source })?;
        let (at_end, ended) = oneshot::channel();
        let handler = Arc::new(self.handler);
        let shared = Shared::new(handler, self.limits, self.password, stop.clone(), workers, at_end);
        let mut server = Server::new(Arc::new(shared), self.direct, stop, threads, ended, drain_timeout);
        server.bind_all(self.listen_on).await?;
        Ok(server)
    }
}
