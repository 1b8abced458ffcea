//! What can be set of an [`Endpoint`] in code, and what of it is possible.

use std::net::IpAddr;
use std::time::Duration;

use valkey_rdma_resp::Protocol;
use valkey_rdma_transport::{Polling, address};

use super::url::canonical;
use super::{Endpoint, EndpointError, Login, RdmaPort, Sentinels, Transport};

const NANOS_PER_MILLI: u128 = 1_000_000;

impl Endpoint {
    /// Sets the user and password for the login. The default user is named `default`, and an empty name stands for it too, as in a URL.
    /// It has no empty password: both empty mean no login.
    #[must_use]
    pub fn with_login(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Login::new(user.into(), password.into());
        self
    }

    /// Sets the password of the default user. An empty one means no login.
    #[must_use]
    pub fn with_password(self, password: impl Into<String>) -> Self {
        self.with_login("", password)
    }

    /// Selects a database after the login. Default 0.
    #[must_use]
    pub fn with_database(mut self, database: u32) -> Self {
        self.database = database;
        self
    }

    /// Sets the protocol version. Default [`Protocol::Resp3`].
    #[must_use]
    pub fn with_protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Limits a connect as a whole: resolving, connecting, logging in. Default 5 s. Shorter gives up on busy servers;
    /// longer reports dead servers later. Units: milliseconds, rounded up, at least 1.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        let millis = timeout.as_nanos().div_ceil(NANOS_PER_MILLI).max(1);
        self.timeout = Duration::from_millis(millis.try_into().unwrap_or(u64::MAX));
        self
    }

    /// Sets the receive window in bytes. Default: the transport's. Smaller costs round trips for large replies; larger
    /// pins more memory, here and on the server. Range [`RX_SIZES`](Self::RX_SIZES), 65536 to 16777216. Connecting
    /// with a value outside, or over TCP with any value, is an error.
    #[must_use]
    pub fn with_rx_size(mut self, bytes: u32) -> Self {
        self.settings.rx_size = Some(bytes);
        self
    }

    /// Sets the RDMA device by name. Default: the one that routes to the server. Over TCP this is an error.
    #[must_use]
    pub fn with_device(mut self, name: impl Into<String>) -> Self {
        self.settings.device = Some(name.into());
        self
    }

    /// Allows a TCP connection to the same host and port if RDMA fails. Default: no, the connect fails. A fallback is
    /// always reported: [`info`](crate::Client::info) has the reason, and a warning is logged. RDMA gets half of the
    /// [timeout](Self::with_timeout). If the server refuses the login, the client does not fall back.
    #[must_use]
    pub fn with_fallback(mut self, to_tcp: bool) -> Self {
        self.fallback = to_tcp;
        self
    }

    /// Connects from the address at this index of the RDMA device's GID table (`ibv_devinfo -v`). Default: the route
    /// decides. RoCE only; an error with any scheme but `rdma`.
    #[must_use]
    pub fn with_gid(mut self, index: u32) -> Self {
        self.settings.gid = Some(index);
        self
    }

    /// Connects from this local address, and through its interface. Default: the route decides.
    #[must_use]
    pub fn with_source(mut self, address: IpAddr) -> Self {
        self.settings.source = Some(address);
        self
    }

    /// Sets how the connection waits for its device. Default [`Polling::Event`]; `Busy` uses a whole CPU. Over TCP,
    /// any other mode is an error.
    #[must_use]
    pub fn with_polling(mut self, mode: Polling) -> Self {
        self.settings.polling = mode;
        self
    }

    /// Sets how the RDMA port of a node follows from the port that its cluster announces. Default
    /// [`RdmaPort::Same`]. An endpoint of a single server, or over TCP, must keep the default.
    #[must_use]
    pub fn with_rdma_port(mut self, rule: RdmaPort) -> Self {
        self.rdma_port = rule;
        self
    }

    /// Makes it the endpoint of the primary that these Sentinels report.
    #[must_use]
    pub fn with_sentinels(mut self, sentinels: Sentinels) -> Self {
        self.host = sentinels.service().to_owned();
        // They say which one.
        self.port = Self::DEFAULT_PORT;
        self.sentinels = Some(Box::new(sentinels));
        self
    }

    /// Makes it the endpoint of an ordinary server, whose address is set next.
    #[must_use]
    pub(crate) fn without_sentinels(mut self) -> Self {
        self.sentinels = None;
        self
    }

    /// Makes it the endpoint of another server with the same settings. A link-local address without an interface is on that of the
    /// server before.
    #[must_use]
    pub(crate) fn with_address(mut self, host: impl Into<String>, port: u16) -> Self {
        self.host = canonical(address::on_interface_of(host.into(), &self.host));
        self.port = port;
        self.tcp_port = None;
        self
    }

    /// Sets the port of the [fallback](Self::with_fallback), if it is another than that of RDMA.
    #[must_use]
    pub(crate) fn with_tcp_port(mut self, port: u16) -> Self {
        self.tcp_port = Some(port);
        self
    }

    /// Makes it an endpoint over TCP, without the settings that make no sense there.
    pub(crate) fn over_tcp(&self, host: impl Into<String>, port: u16) -> Self {
        let mut tcp = Self::new(Transport::Tcp, host, port);
        tcp.login.clone_from(&self.login);
        (tcp.database, tcp.protocol) = (self.database, self.protocol);
        (tcp.timeout, tcp.settings.source) = (self.timeout, self.settings.source);
        tcp
    }

    /// Refuses Sentinels and clusters, where the address must be that of a server.
    pub(crate) fn check_direct(&self) -> Result<(), EndpointError> {
        match (&self.sentinels, &self.other_seeds) {
            (Some(_), _) => Err(EndpointError::SentinelHere),
            (None, Some(_)) => Err(EndpointError::ClusterHere),
            (None, None) => Ok(()),
        }
    }

    /// Refuses a cluster, and what only makes sense for one, where one server is needed.
    pub(crate) fn check_single(&self) -> Result<(), EndpointError> {
        match self.rdma_port {
            _ if self.is_cluster() => Err(EndpointError::ClusterHere),
            RdmaPort::Same => Ok(()),
            _ if self.sentinels.is_some() => Ok(()),
            _ => Err(EndpointError::OnlyForClusters { option: "rdma_port" }),
        }
    }

    /// Refuses what the setters accept and no URL can say.
    pub(crate) fn check(&self) -> Result<(), EndpointError> {
        match &self.sentinels {
            Some(_) if self.is_cluster() => return Err(EndpointError::SentinelHere),
            Some(sentinels) => sentinels.check()?,
            None => {
                let others = self.other_seeds.iter().flatten().map(|(host, port)| (host, *port));
                for (host, port) in others.chain([(&self.host, self.port)]) {
                    match (host.is_empty(), port) {
                        (true, _) => return Err(EndpointError::MissingHost),
                        (false, 0) => return Err(EndpointError::PortZero),
                        _ => {}
                    }
                }
            }
        }
        let mut read_back = self.clone();
        self.options().try_for_each(|(name, value)| read_back.set_option(name, &value))
    }
}
