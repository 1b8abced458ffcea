//! A server: listeners of any kind in front of one handler.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
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
use crate::refused::{Refusals, Refused};
use crate::shutdown::{Stop, Stopper};

/// A running server. Dropping it cuts every connection at once; [`shutdown`](Self::shutdown) lets them finish.
///
/// ```
/// use valkey_rdma_mock::Mock;
/// use valkey_rdma_server::{DeviceKind, Server, TransportConfig};
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
    /// What closes the listener of the endpoint with the same index.
    closers: Vec<Stopper>,
    host: Box<dyn Host>,
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
    Rdma(DeviceKind, SocketAddr, Box<TransportConfig>),
    Made(Box<RdmaListener>),
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

    /// What was turned away or ended since the start, by cause.
    pub fn refused(&self) -> Refused {
        self.host.refusals().snapshot()
    }

    /// Listens on one more address over TCP. Port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// [`BindError`] if the address cannot be had; the others go on.
    pub async fn listen_tcp(&mut self, addr: SocketAddr) -> Result<Endpoint, BindError> {
        self.listen(Address::Tcp(addr)).await
    }

    /// Listens on one more address over RDMA. Port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// As [`listen_tcp`](Self::listen_tcp).
    pub async fn listen_rdma(
        &mut self,
        device: DeviceKind,
        addr: SocketAddr,
        config: &TransportConfig,
    ) -> Result<Endpoint, BindError> {
        self.listen(Address::Rdma(device, addr, Box::new(config.clone()))).await
    }

    /// Accepts no more connections on `endpoint`; those it has accepted go on. `false`: there is no such endpoint.
    ///
    /// With [`listen_tcp`](Self::listen_tcp) or [`listen_rdma`](Self::listen_rdma) before it, this changes a port and harms
    /// nobody. The address is free again a moment later.
    pub fn close_listener(&mut self, endpoint: Endpoint) -> bool {
        let Some(index) = self.endpoints.iter().position(|known| *known == endpoint) else { return false };
        self.endpoints.remove(index);
        self.closers.remove(index).stop();
        true
    }

    async fn listen(&mut self, address: Address) -> Result<Endpoint, BindError> {
        let closer = Stopper::new();
        let (endpoint, listening) =
            self.host.bind(address, self.stopper.listener(), closer.listener()).await?;
        self.endpoints.push(endpoint);
        self.closers.push(closer);
        self.listeners.spawn(listening);
        Ok(endpoint)
    }
}

type Listening = Pin<Box<dyn Future<Output = ()> + Send>>;
type Binding<'a> = Pin<Box<dyn Future<Output = Result<(Endpoint, Listening), BindError>> + Send + 'a>>;

/// What listeners serve, whatever the handler is.
trait Host: Send + Sync {
    /// Binds an address: the endpoint, and the future that serves it.
    fn bind(&self, address: Address, stop: Stop, close: Stop) -> Binding<'_>;

    fn refusals(&self) -> &Refusals;
}

impl fmt::Debug for dyn Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

impl<H: Handler> Host for Arc<Shared<H>> {
    fn bind(&self, address: Address, stop: Stop, close: Stop) -> Binding<'_> {
        Box::pin(async move {
            Ok(match address {
                Address::Tcp(addr) => {
                    let listener =
                        TcpListener::bind(addr).await.map_err(|source| BindError::Tcp { addr, source })?;
                    serve(listener, self, stop, close)
                }
                Address::Rdma(device, addr, config) => {
                    let listener = Listener::bind(device, addr, &config).await?;
                    serve(RdmaListener { listener, device }, self, stop, close)
                }
                Address::Made(listener) => serve(*listener, self, stop, close),
            })
        })
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}

fn serve<H: Handler>(
    listener: impl Accept,
    shared: &Arc<Shared<H>>,
    stop: Stop,
    close: Stop,
) -> (Endpoint, Listening) {
    let endpoint = Endpoint { transport: listener.transport(), addr: listener.local_addr() };
    (endpoint, Box::pin(listen(listener, shared.clone(), stop, close)))
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
        self.listen_on.push(Address::Rdma(device, addr, Box::new(config.clone())));
        self
    }

    /// Adds a listener that was made elsewhere, on a device of this kind: for example one on a device with faults, for
    /// tests.
    pub fn listener(mut self, device: DeviceKind, listener: Listener) -> Self {
        self.listen_on.push(Address::Made(Box::new(RdmaListener { listener, device })));
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
        let drain_timeout = self.config.drain_timeout;
        let mut server = Server {
            endpoints: Vec::new(),
            closers: Vec::new(),
            host: Box::new(Arc::new(Shared::new(Arc::new(self.handler), self.config))),
            stopper: Stopper::new(),
            listeners: JoinSet::new(),
            drain_timeout,
        };
        for address in self.listen_on {
            server.listen(address).await?;
        }
        Ok(server)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.transport.scheme(), self.addr)
    }
}
