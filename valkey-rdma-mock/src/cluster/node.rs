//! One node: its mock, and the server in front of it.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::Mutex;
use valkey_rdma_server::{
    Address, BindError, DeviceKind, Listening, Server, ServerTls, TlsError, Transport, TransportConfig,
};

use crate::encryption::encrypted;
use crate::held_port::{HeldPorts, patiently};
use crate::membership::Member;
use crate::mock::Mock;

/// Where a node listens.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    pub(super) tcp: Option<SocketAddr>,
    pub(super) rdma: Option<(DeviceKind, SocketAddr)>,
    pub(super) transport: TransportConfig,
    pub(super) tls: Option<ServerTls>,
}

impl Addresses {
    /// What to listen on for TCP at `addr`.
    pub(super) fn over_tcp(&self, addr: SocketAddr) -> Address {
        encrypted(Address::tcp(addr), self.tls.as_ref())
    }

    /// What to listen on for RDMA at `addr`.
    pub(super) fn over_rdma(&self, device: DeviceKind, addr: SocketAddr) -> Address {
        encrypted(Address::rdma(device, addr, &self.transport), self.tls.as_ref())
    }

    fn url(&self, transport: Transport, addr: SocketAddr) -> String {
        Listening { transport, tls: self.tls.is_some(), addr }.to_string()
    }
}

/// A node, running or killed.
pub(super) struct Node {
    addresses: Addresses,
    member: Member,
    running: Mutex<Option<Running>>,
    held: Mutex<HeldPorts>,
}

/// What a kill ends.
pub(super) struct Running {
    server: Server,
    mock: Arc<Mock>,
}

impl Running {
    pub(super) fn new(server: Server, mock: Arc<Mock>) -> Self {
        Self { server, mock }
    }
}

impl Node {
    pub(super) fn new(addresses: Addresses, member: Member, running: Running) -> Self {
        Self { addresses, member, running: Mutex::new(Some(running)), held: Mutex::default() }
    }

    pub(super) fn url(&self) -> String {
        let rdma =
            self.addresses.rdma.map(|(device, addr)| self.addresses.url(Transport::Rdma(device), addr));
        rdma.or_else(|| self.tcp_url()).unwrap_or_default()
    }

    pub(super) fn tcp_url(&self) -> Option<String> {
        self.addresses.tcp.map(|addr| self.addresses.url(Transport::Tcp, addr))
    }

    pub(super) async fn connections(&self) -> usize {
        self.running.lock().await.as_ref().map_or(0, |running| running.mock.connections())
    }

    /// Closes all connections and listeners at once, as the death of a process does.
    pub(super) async fn kill(&self) {
        let mut running = self.running.lock().await;
        if let Some(Running { server, mock: _mock }) = running.take() {
            server.cut().await;
        }
        for addr in self.addresses.tcp.into_iter().chain(self.emulated_addr()) {
            self.held.lock().await.hold(addr).await;
        }
    }

    pub(super) async fn shutdown(self) {
        if let Some(Running { server, mock: _mock }) = self.running.into_inner() {
            server.shutdown().await;
        }
    }

    /// The emulated device listens on TCP ports.
    fn emulated_addr(&self) -> Option<SocketAddr> {
        self.addresses.rdma.filter(|(device, _)| *device == DeviceKind::Emulated).map(|(_, addr)| addr)
    }

    /// Listens again where it listened before.
    pub(super) async fn restart(&self) -> Result<(), BindError> {
        let mut running = self.running.lock().await;
        if running.is_some() {
            return Ok(());
        }
        let mock = Arc::new(Mock::node(self.member.clone()));
        let server = patiently(async || {
            let mut builder = Server::builder(mock.clone()).direct(true);
            if let Some(addr) = self.addresses.tcp {
                builder = builder.listen(self.addresses.over_tcp(addr));
            }
            if let Some((device, addr)) = self.addresses.rdma {
                builder = builder.listen(self.addresses.over_rdma(device, addr));
            }
            builder.start().await
        });
        *running = Some(Running { server: server.await?, mock });
        Ok(())
    }

    pub(super) async fn reload_tls(&self) -> Result<(), TlsError> {
        self.running.lock().await.as_ref().map_or(Ok(()), |running| running.server.reload_tls())
    }

    /// Closes the connections over RDMA, or all of them.
    pub(super) async fn disconnect(&self, all: bool) {
        if let Some(running) = &*self.running.lock().await {
            running.mock.disconnect(|client| all || client.transport != Transport::Tcp);
        }
    }

    /// Stops listening for RDMA, and closes its connections.
    pub(super) async fn close_rdma(&self) {
        if let Some(running) = &mut *self.running.lock().await {
            for listening in running.server.listening() {
                if listening.transport != Transport::Tcp {
                    running.server.close_listener(listening);
                }
            }
            running.mock.disconnect(|client| client.transport != Transport::Tcp);
            if let Some(addr) = self.emulated_addr() {
                self.held.lock().await.hold(addr).await;
            }
        }
    }

    /// Listens for RDMA again.
    pub(super) async fn open_rdma(&self) -> Result<(), BindError> {
        let (Some(running), Some((device, addr))) = (&mut *self.running.lock().await, self.addresses.rdma)
        else {
            return Ok(());
        };
        let listens = |listening: &Listening| listening.transport == Transport::Rdma(device);
        if running.server.listening().iter().any(listens) {
            return Ok(());
        }
        let server = &mut running.server;
        patiently(async || server.listen(self.addresses.over_rdma(device, addr)).await).await?;
        Ok(())
    }
}
