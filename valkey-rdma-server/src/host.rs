//! [`Host`]: a handler and what its listeners share, without the handler's type. It binds addresses.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use valkey_rdma_transport::address::{self, AddressError};
use valkey_rdma_transport::{Config as TransportConfig, DeviceKind, Listener, TransportError};

use crate::accept::{Accept, listen_tcp};
use crate::error::BindError;
use crate::handler::Handler;
use crate::listen_url::ListenUrl;
use crate::listener::{Shared, accept_until};
use crate::monitor::Monitor;
use crate::peer::Transport;
use crate::registry::{Listening, Registration};

/// An address to listen on.
pub(crate) enum Address {
    Url(String),
    Tcp(SocketAddr),
    Rdma(DeviceKind, SocketAddr, Box<TransportConfig>),
    Bound(Box<Listener>),
    BoundTcp(TcpListener),
}

/// Makes the future that serves a listener.
pub(crate) type Serving = Box<dyn FnOnce(Registration) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;
pub(crate) type Binding<'a> =
    Pin<Box<dyn Future<Output = Result<(Listening, Serving), BindError>> + Send + 'a>>;

/// A handler and what its listeners share, without the handler's type.
pub(crate) trait Host: Send + Sync {
    /// Binds an address. Returns where it listens, and what makes the future that serves it.
    fn bind(&self, address: Address, close: CancellationToken) -> Binding<'_>;

    fn monitor(&self) -> &Monitor;
}

impl fmt::Debug for dyn Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

impl<H: Handler> Host for Arc<Shared<H>> {
    fn bind(&self, address: Address, close: CancellationToken) -> Binding<'_> {
        Box::pin(async move {
            Ok(match address {
                Address::Url(url) => return self.bind(resolve(url).await?, close).await,
                Address::Tcp(addr) => {
                    let listener = listen_tcp(addr).map_err(|source| BindError::Tcp { addr, source })?;
                    serve(listener, self, close)
                }
                Address::Rdma(device, addr, config) => {
                    serve(Listener::bind(device, addr, &config).await?, self, close)
                }
                Address::Bound(listener) => serve(*listener, self, close),
                Address::BoundTcp(listener) => serve(listener, self, close),
            })
        })
    }

    fn monitor(&self) -> &Monitor {
        &self.monitor
    }
}

/// The address that a URL means.
async fn resolve(url: String) -> Result<Address, BindError> {
    let ListenUrl { transport, host, port, config } = match ListenUrl::parse(&url) {
        Ok(parsed) => parsed,
        Err(reason) => {
            // What stands before the host may be a password.
            let url = url.rsplit('@').next().unwrap_or_default().to_owned();
            return Err(BindError::Url { url, reason });
        }
    };
    let found = address::resolve(&host, port).await;
    let first = found.and_then(|found| found.first().copied().ok_or_else(|| io::ErrorKind::NotFound.into()));
    let addr = first.map_err(|source| match AddressError::within(&source) {
        Some(error) => BindError::Rdma(TransportError::Address(error.clone())),
        None => BindError::Resolve { host, source },
    })?;
    Ok(match transport {
        Transport::Tcp => Address::Tcp(addr),
        Transport::Rdma(device) => Address::Rdma(device, addr, Box::new(config)),
    })
}

fn serve<H: Handler>(
    listener: impl Accept,
    shared: &Arc<Shared<H>>,
    close: CancellationToken,
) -> (Listening, Serving) {
    let listening = Listening { transport: listener.transport(), addr: listener.local_addr() };
    let shared = shared.clone();
    let serving = |registration| -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(accept_until(listener, shared, close, registration))
    };
    (listening, Box::new(serving))
}
