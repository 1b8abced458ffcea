//! [`MockClusterBuilder`]: what kind of cluster to start.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use valkey_rdma_server::{BindError, DeviceKind, Server, ServerTls, Transport, TransportConfig};

use super::MockCluster;
use super::node::{Addresses, Node, Running};
use crate::encryption;
use crate::held_port::is_in_use;
use crate::membership::{Bus, Endpoint, Member, NodeInfo, Topology};
use crate::mock::Mock;

/// The shape of a [`MockCluster`] that has not been started.
#[derive(Debug)]
pub struct MockClusterBuilder {
    primaries: usize,
    replicas: usize,
    ip: IpAddr,
    first_port: Option<u16>,
    transports: Transports,
    transport: TransportConfig,
    tls: Option<ServerTls>,
    zones: Vec<String>,
}

/// What the nodes of a [`MockCluster`] listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transports {
    /// RDMA alone. The nodes announce its port.
    Rdma(DeviceKind),
    /// TCP alone.
    Tcp,
    /// Both. As real nodes do, they announce the TCP port alone. `Verbs` has the same port number. The emulated device uses
    /// TCP ports, so there the RDMA port is the TCP port plus 1. `INFO SERVER` names both.
    Both(DeviceKind),
}

impl MockClusterBuilder {
    pub(super) fn new(primaries: usize) -> Self {
        Self {
            primaries,
            replicas: 0,
            ip: Ipv4Addr::LOCALHOST.into(),
            first_port: None,
            transports: Transports::Rdma(DeviceKind::Emulated),
            transport: TransportConfig::default(),
            tls: encryption::from_environment(),
            zones: Vec::new(),
        }
    }

    /// Gives each primary this many replicas. Default 0. The replicas of primary `p` are the nodes `primaries + p`,
    /// `2 * primaries + p` and so on.
    pub fn replicas(mut self, each: usize) -> Self {
        self.replicas = each;
        self
    }

    /// What the nodes listen on. Default: RDMA on the emulated device.
    pub fn transports(mut self, transports: Transports) -> Self {
        self.transports = transports;
        self
    }

    /// The port of node 0. The others have the next ones: with [`Transports::Both`] of the emulated device every second, else every
    /// one. Default: free ports.
    pub fn first_port(mut self, port: u16) -> Self {
        self.first_port = Some(port).filter(|port| *port > 0);
        self
    }

    /// The address that all nodes listen on. Default 127.0.0.1.
    pub fn bind(mut self, ip: IpAddr) -> Self {
        self.ip = ip;
        self
    }

    /// The options of RDMA connections, for example smaller buffers for many nodes.
    pub fn transport(mut self, config: &TransportConfig) -> Self {
        self.transport = config.clone();
        self
    }

    /// Encrypts all connections with this certificate, which should name the [address](Self::bind) of the nodes. They announce these ports.
    /// Default: none, or that of the environment as for [`MockServer`](crate::MockServer).
    pub fn tls(mut self, settings: impl Into<Option<ServerTls>>) -> Self {
        self.tls = settings.into();
        self
    }

    /// Availability zones, given to the nodes in turn. Default: none.
    pub fn zones(mut self, zones: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.zones = zones.into_iter().map(Into::into).collect();
        self
    }

    /// Starts all nodes.
    ///
    /// # Errors
    ///
    /// [`BindError`] if a node cannot listen.
    pub async fn start(self) -> Result<MockCluster, BindError> {
        let count = self.primaries * (1 + self.replicas);
        let number = NODES.fetch_add(count as u32, Ordering::Relaxed);
        let unbound = (0..count).map(|node| self.describe(node, number + node as u32)).collect();
        let bus = Arc::new(Bus::new(Topology::new(unbound), self.primaries));
        let mut nodes = Vec::with_capacity(count);
        for node in 0..count {
            let member = Member {
                index: node,
                bus: bus.clone(),
                keyspace: bus.keyspace(node % self.primaries).clone(),
                behaviour: bus.behaviour(node).clone(),
                listeners: Arc::default(),
            };
            nodes.push(self.start_node(member).await?);
        }
        Ok(MockCluster { bus, nodes })
    }

    /// What is known of a node before it listens. No other node has its number.
    fn describe(&self, node: usize, number: u32) -> NodeInfo {
        let zone = if self.zones.is_empty() { "" } else { &self.zones[node % self.zones.len()] };
        let shard = node % self.primaries;
        NodeInfo {
            id: format!("{:08x}", ID_STEP.wrapping_mul(number)).repeat(5).into(),
            shard,
            primary: (node >= self.primaries).then_some(shard),
            addr: SocketAddr::new(self.ip, 0),
            endpoint: Endpoint::Ip,
            zone: zone.into(),
            epoch: shard as u64 + 1,
            failed: false,
        }
    }

    async fn start_node(&self, member: Member) -> Result<Node, BindError> {
        let mut attempts = 0;
        let (running, addresses) = loop {
            match self.listen(&member).await {
                // The port beside the free one is not free.
                Err(error) if is_in_use(&error) && attempts < ATTEMPTS && self.first_port.is_none() => {
                    attempts += 1;
                }
                outcome => break outcome?,
            }
        };
        let announced = addresses
            .tcp
            .or(addresses.rdma.map(|(_, addr)| addr))
            .unwrap_or_else(|| self.port_of(member.index));
        member.bus.change(|topology| topology.nodes[member.index].addr = announced);
        let over_tcp = if self.tls.is_some() { "tls" } else { "tcp" };
        let names = [(over_tcp, addresses.tcp), ("rdma", addresses.rdma.map(|(_, addr)| addr))];
        let names = names.into_iter().filter_map(|(name, addr)| Some((name, addr?))).enumerate();
        let line = |(index, (name, addr)): (usize, (&str, SocketAddr))| {
            format!("listener{index}:name={name},bind={},port={}", addr.ip(), addr.port())
        };
        // The only place that sets it.
        let _ = member.listeners.set(names.map(line).collect());
        Ok(Node::new(addresses, member, running))
    }

    async fn listen(&self, member: &Member) -> Result<(Running, Addresses), BindError> {
        let mock = Arc::new(Mock::node(member.clone()));
        let builder = Server::builder(mock.clone()).direct(true);
        let port = self.port_of(member.index);
        let mut addresses =
            Addresses { tcp: None, rdma: None, transport: self.transport.clone(), tls: self.tls.clone() };
        let (first, rdma) = match self.transports {
            Transports::Tcp => (addresses.over_tcp(port), None),
            Transports::Rdma(device) => (addresses.over_rdma(device, port), None),
            Transports::Both(device) => (addresses.over_tcp(port), Some(device)),
        };
        let mut server = builder.listen(first).start().await?;
        for listening in server.listening() {
            match listening.transport {
                Transport::Rdma(device) => addresses.rdma = Some((device, listening.addr)),
                _ => addresses.tcp = Some(listening.addr),
            }
        }
        if let (Some(device), Some(tcp)) = (rdma, addresses.tcp) {
            let port = if device == DeviceKind::Verbs { tcp.port() } else { tcp.port().wrapping_add(1) };
            let listening =
                server.listen(addresses.over_rdma(device, SocketAddr::new(self.ip, port))).await?;
            addresses.rdma = Some((device, listening.addr));
        }
        Ok((Running::new(server, mock), addresses))
    }

    fn port_of(&self, node: usize) -> SocketAddr {
        let step = if self.transports == Transports::Both(DeviceKind::Emulated) { 2 } else { 1 };
        let port = self.first_port.map_or(0, |first| first.wrapping_add((node * step) as u16));
        SocketAddr::new(self.ip, port)
    }
}

/// The number of the next node of any cluster. A client recognizes a cluster by the ids of its nodes.
static NODES: AtomicU32 = AtomicU32::new(1);

/// Odd, so that ids differ for every number of nodes.
const ID_STEP: u32 = 0x9e37_79b9;

const ATTEMPTS: usize = 100;
