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
use crate::listener::{BindError, Listener};
use crate::server::Server;
use crate::workers::Workers;

/// The addresses and the limits of a server that has not been started.
pub struct Builder<H> {
    handler: H,
    listen_on: Vec<Address>,
    limits: Limits,
    password: Option<Bytes>,
    threads: usize,
}

/// Without URLs and password.
impl<H> fmt::Debug for Builder<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("limits", &self.limits)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Builds a server that runs `handler`'s commands.
    pub fn builder<H: Handler>(handler: H) -> Builder<H> {
        Builder { handler, listen_on: Vec::new(), limits: Limits::default(), password: None, threads: 0 }
    }
}

impl<H: Handler> Builder<H> {
    /// Listens on the address of a URL, which is the one that clients connect to: `rdma://10.0.0.7:6379`, `valkey://0.0.0.0:6379` (or
    /// `redis://`) for TCP, `emulated://127.0.0.1:0` with cargo feature `emulated`. A name must be one of this machine. Port 0 takes a
    /// free port, no port means 6379. Options on devices: `rx_size=` in bytes, 65536 to 16777216, `poll=event|busy|adaptive`, `device=NAME`.
    ///
    /// A wrong URL is an error of [`start`](Self::start).
    pub fn listen(mut self, url: impl Into<String>) -> Self {
        self.listen_on.push(Address::Url(url.into()));
        self
    }

    /// Listens on `addr` over TCP. Port 0 takes a free port. Up to 511 connections wait until they are accepted (Valkey's
    /// `tcp-backlog`); for another number, bring a [listener](Self::tcp_listener).
    pub fn tcp(mut self, addr: SocketAddr) -> Self {
        self.listen_on.push(Address::tcp(addr));
        self
    }

    /// Listens on `addr` over RDMA, on a device of this kind. Port 0 takes a free port. The ports of a real RDMA device are
    /// independent of TCP's; the emulated device uses TCP ports.
    pub fn rdma(mut self, device: DeviceKind, addr: SocketAddr, config: &TransportConfig) -> Self {
        self.listen_on.push(Address::rdma(device, addr, config));
        self
    }

    /// Accepts the connections of a listener that is bound already, for example one with injected faults.
    pub fn listener(mut self, listener: RdmaListener) -> Self {
        self.listen_on.push(Address::Bound(Listener::Rdma(Box::new(listener))));
        self
    }

    /// Accepts the connections of a TCP listener that is bound already: with options of your own, or passed by systemd (make
    /// it with [`TcpListener::from_std`]).
    pub fn tcp_listener(mut self, listener: TcpListener) -> Self {
        self.listen_on.push(Address::Bound(Listener::Tcp(listener)));
        self
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
        let mut server = Server::new(Arc::new(shared), stop, threads, ended, drain_timeout);
        server.bind_all(self.listen_on).await?;
        Ok(server)
    }
}
