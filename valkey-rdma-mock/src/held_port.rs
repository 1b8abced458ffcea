//! [`HeldPorts`]: the ports of a server that is down and will be back.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpSocket;
use tokio::task::yield_now;
use valkey_rdma_server::BindError;

/// TCP ports of a server that was killed, bound but not listened on. While the server is down, connects are refused, and the
/// system gives the ports to no other program. Clients would take that program for the server.
#[derive(Default)]
pub(crate) struct HeldPorts(Vec<HeldPort>);

impl HeldPorts {
    /// Keeps a port from now on.
    pub(crate) async fn hold(&mut self, addr: SocketAddr) {
        if self.0.iter().all(|port| port.addr != addr) {
            // If another program was faster, the restart reports it.
            self.0.extend(HeldPort::bind(addr).await);
        }
    }
}

struct HeldPort {
    addr: SocketAddr,
    _bound: TcpSocket,
}

impl HeldPort {
    /// As soon as nothing listens there.
    async fn bind(addr: SocketAddr) -> Result<Self, BindError> {
        patiently(async || {
            let bind = || {
                let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
                socket.set_reuseaddr(true)?;
                socket.bind(addr)?;
                Ok(socket)
            };
            bind().map_err(|source| BindError::Tcp { addr, source })
        })
        .await
        .map(|bound| Self { addr, _bound: bound })
    }
}

/// Binds again and again while the address is in use: the listener that had it before ends in a task of its own.
pub(crate) async fn patiently<T>(
    mut bind: impl AsyncFnMut() -> Result<T, BindError>,
) -> Result<T, BindError> {
    for _ in 0..ATTEMPTS {
        match bind().await {
            Err(error) if is_in_use(&error) => yield_now().await,
            outcome => return outcome,
        }
    }
    bind().await
}

pub(crate) fn is_in_use(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::AddrInUse)
}

const ATTEMPTS: usize = 10_000;
