//! A server: listeners of any kind in front of one handler.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tracing::warn;
use valkey_rdma_transport::{Config as TransportConfig, DeviceKind, Listener};

use crate::config::Config;
use crate::error::BindError;
use crate::handler::{Handler, Transport};
use crate::listener::{Accept, RdmaListener, Shared, listen};
use crate::shutdown::Stopper;

/// A running server. Dropping it cuts every connection at once; [`shutdown`](Self::shutdown) lets them finish.
///
/// ```
/// use valkey_rdma_server::{DeviceKind, Mock, Server, TransportConfig};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let any_port = "127.0.0.1:0".parse().unwrap();
/// let server = Server::builder(Mock::new())
///     .rdma(DeviceKind::Emulated, any_port, &TransportConfig::default())
///     .tcp(any_port)
///     .start()
///     .await?;
/// for url in server.urls() {
///     println!("ready {url}"); // emulated://127.0.0.1:49152, valkey://127.0.0.1:40123
/// }
/// server.shutdown().await;
/// # Ok::<_, valkey_rdma_server::BindError>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Server {
    endpoints: Vec<Endpoint>,
    stopper: Stopper,
    listeners: JoinSet<()>,
    drain_timeout: Duration,
}

/// Where a server is to listen, and within what limits.
#[derive(Debug)]
pub struct Builder<H> {
    handler: H,
    listen_on: Vec<Address>,
    config: Config,
}

/// An address asked for.
#[derive(Debug)]
enum Address {
    Tcp(SocketAddr),
    Rdma(DeviceKind, SocketAddr, TransportConfig),
    Made(RdmaListener),
}

/// An address a server listens on. `Display` is the URL of a client: `valkey://127.0.0.1:6379`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// What carries the bytes.
    pub transport: Transport,
    /// The address, with the real port if 0 was asked for.
    pub addr: SocketAddr,
}

impl Server {
    /// A server that is to run `handler`'s commands.
    pub fn builder<H: Handler>(handler: H) -> Builder<H> {
        Builder { handler, listen_on: Vec::new(), config: Config::default() }
    }

    /// What the server listens on, in the order asked for.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// URLs of what the server listens on, in the order asked for.
    pub fn urls(&self) -> impl Iterator<Item = String> {
        self.endpoints.iter().map(Endpoint::to_string)
    }

    /// Stops accepting, lets every connection run the commands that have arrived whole and deliver their
    /// replies, and closes it. A TCP client may take a second to close its side too, so that no reset overtakes
    /// its last replies. Connections that take longer than [`Config::drain_timeout`] are cut.
    ///
    /// **Cancel safety**: dropping the future cuts what is left.
    pub async fn shutdown(mut self) {
        self.stopper.stop();
        let drained = async { while self.listeners.join_next().await.is_some() {} };
        if tokio::time::timeout(self.drain_timeout, drained).await.is_err() {
            warn!(timeout = ?self.drain_timeout, "connections did not end in time and are cut");
            self.listeners.shutdown().await;
        }
    }

    fn spawn<H: Handler>(&mut self, listener: impl Accept, shared: &Arc<Shared<H>>) {
        self.endpoints.push(Endpoint { transport: listener.transport(), addr: listener.local_addr() });
        self.listeners.spawn(listen(listener, shared.clone(), self.stopper.listener()));
    }
}

impl<H: Handler> Builder<H> {
    /// Listens on `addr` over TCP. Port 0 takes a free one.
    pub fn tcp(mut self, addr: SocketAddr) -> Self {
        self.listen_on.push(Address::Tcp(addr));
        self
    }

    /// Listens on `addr` over RDMA, on a device of this kind. Port 0 takes a free one. A real
    /// device's ports are not those of TCP; the emulated device's are.
    pub fn rdma(mut self, device: DeviceKind, addr: SocketAddr, config: &TransportConfig) -> Self {
        self.listen_on.push(Address::Rdma(device, addr, config.clone()));
        self
    }

    /// Serves whoever connects to a listener made elsewhere, on a device of this kind: one over a device that
    /// [lies](crate::faults), for example.
    pub fn listener(mut self, device: DeviceKind, listener: Listener) -> Self {
        self.listen_on.push(Address::Made(RdmaListener { listener, device }));
        self
    }

    /// Replaces the limits.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Listens on all addresses and begins to serve.
    ///
    /// # Errors
    ///
    /// [`BindError`] if one of the addresses cannot be had; the others are given up again.
    pub async fn start(self) -> Result<Server, BindError> {
        if self.listen_on.is_empty() {
            return Err(BindError::NoListener);
        }
        let mut server = Server {
            endpoints: Vec::new(),
            stopper: Stopper::new(),
            listeners: JoinSet::new(),
            drain_timeout: self.config.drain_timeout,
        };
        let shared = Arc::new(Shared::new(Arc::new(self.handler), self.config));
        for address in self.listen_on {
            match address {
                Address::Tcp(addr) => {
                    let listener =
                        TcpListener::bind(addr).await.map_err(|source| BindError::Tcp { addr, source })?;
                    server.spawn(listener, &shared);
                }
                Address::Rdma(device, addr, config) => {
                    let listener = Listener::bind(device, addr, &config).await?;
                    server.spawn(RdmaListener { listener, device }, &shared);
                }
                Address::Made(listener) => server.spawn(listener, &shared),
            }
        }
        Ok(server)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.transport.scheme(), self.addr)
    }
}
