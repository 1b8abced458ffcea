//! [`Endpoint`]: the address, transport, login and options of a server; from a URL or built in code.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use valkey_rdma_resp::Protocol;
use valkey_rdma_transport::{Config as TransportConfig, Polling};

mod error;
mod percent;
mod rdma_port;
mod sentinels;
mod url;

pub use self::error::EndpointError;
pub use self::rdma_port::RdmaPort;
pub use self::sentinels::Sentinels;

/// The transport of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// RDMA through kernel verbs: `rdma://`.
    Rdma,
    /// The software device, for tests and trials: `emulated://`. It is not RDMA.
    Emulated,
    /// TCP: `valkey://` and `redis://`.
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rdma => "rdma",
            Self::Emulated => "emulated",
            Self::Tcp => "tcp",
        })
    }
}

/// A server to connect to.
///
/// Shape of the URL: `scheme://[user[:password]@]host[:port][/database][?option=value&...]`, with user and password
/// percent-encoded and IPv6 addresses in brackets.
///
/// | part | meaning |
/// |---|---|
/// | scheme | `rdma`, `emulated`, or `valkey` and `redis` for TCP; with `+sentinel` behind it, see below |
/// | user, password | for AUTH; `:password@` alone logs in the default user |
/// | port | 6379 unless given |
/// | database | for SELECT; 0 unless given |
/// | `protocol=` | `resp3` (default) or `resp2` |
/// | `timeout=` | limit for resolving, connecting and logging in together, as `500ms`, `5s` or `1m`; 5 s unless given |
/// | `rx_size=` | receive window in bytes, 65536 to 16777216; not on TCP |
/// | `device=` | name of the RDMA device, or of the emulated device; not on TCP |
/// | `gid=` | index into the RDMA device's table of GIDs, which chooses the address to connect from; `rdma` only |
/// | `source=` | address of this machine to connect from; not on the emulated device |
/// | `poll=` | `event` (default), `busy` or `adaptive`, see [`Polling`]; not on TCP |
/// | `fallback=` | `tcp`: if RDMA fails, connect to the same host and port over TCP, and report it; not on TCP |
/// | `rdma_port=` | RDMA port of a node that was announced with its TCP port: `same` (default), `+N`, `N` or `discover`, see [`RdmaPort`]; for clusters, not on TCP |
///
/// # Sentinel
/// `rdma+sentinel://[user[:password]@]sentinel[:port][,sentinel[:port]...]/service[/database][?option=value&...]` names the primary
/// of a service. [`Client`](crate::Client) asks the Sentinels for its address, over TCP, connects to it, verifies its role,
/// and follows it after a failover. The port of a Sentinel is 26379 unless given. User and password are those of the servers;
/// `sentinel_user=` and `sentinel_password=` those of the Sentinels. `rdma_port=` applies as for clusters. The host of such an
/// endpoint is the name of the service.
///
/// ```
/// use valkey_rdma_client::{Endpoint, Transport};
///
/// let endpoint: Endpoint = "rdma://app:s%40cret@[fd00::7]:6380/2?rx_size=1048576&timeout=2s".parse()?;
/// assert_eq!(endpoint.transport(), Transport::Rdma);
/// assert_eq!((endpoint.host(), endpoint.port(), endpoint.database()), ("fd00::7", 6380, 2));
/// assert_eq!(endpoint.to_string(), "rdma://app:***@[fd00::7]:6380/2");
///
/// let same = Endpoint::new(Transport::Rdma, "fd00::7", 6380).with_login("app", "s@cret").with_database(2);
/// # Ok::<(), valkey_rdma_client::EndpointError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    transport: Transport,
    host: String,
    port: u16,
    user: Option<String>,
    password: Option<String>,
    database: u32,
    protocol: Protocol,
    timeout: Duration,
    rx_size: Option<u32>,
    device: Option<String>,
    gid: Option<u32>,
    fallback: bool,
    source: Option<IpAddr>,
    polling: Polling,
    rdma_port: RdmaPort,
    /// The server is the primary that these report.
    sentinels: Option<Box<Sentinels>>,
    /// The port of the fallback, if it is another.
    tcp_port: Option<u16>,
}

impl Endpoint {
    /// The default port.
    pub const DEFAULT_PORT: u16 = 6379;
    /// The default connect timeout.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
    /// Valid lengths of the receive window in bytes: 64 KiB to 16 MiB.
    ///
    /// Source: spec clause W-2. A Valkey server allocates and pins as much as we announce, and ends when it cannot.
    pub const RX_SIZES: RangeInclusive<u32> = 65_536..=16_777_216;

    /// A server without login, on database 0, with every option at its default.
    #[must_use]
    pub fn new(transport: Transport, host: impl Into<String>, port: u16) -> Self {
        Self {
            transport,
            host: host.into(),
            port,
            user: None,
            password: None,
            database: 0,
            protocol: Protocol::default(),
            timeout: Self::DEFAULT_TIMEOUT,
            rx_size: None,
            device: None,
            gid: None,
            fallback: false,
            source: None,
            polling: Polling::default(),
            rdma_port: RdmaPort::Same,
            sentinels: None,
            tcp_port: None,
        }
    }

    /// Sets the user and password for the login. The default user is named `default`.
    #[must_use]
    pub fn with_login(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self.password = Some(password.into());
        self
    }

    /// Sets the password of the default user.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<String>) -> Self {
        self.user = None;
        self.password = Some(password.into());
        self
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
    /// longer reports dead servers later.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the receive window in bytes. Default: the transport's. Smaller costs round trips for large replies; larger
    /// pins more memory, here and on the server. Range [`RX_SIZES`](Self::RX_SIZES), 65536 to 16777216. Connecting
    /// with a value outside, or over TCP with any value, is an error.
    #[must_use]
    pub fn with_rx_size(mut self, bytes: u32) -> Self {
        self.rx_size = Some(bytes);
        self
    }

    /// Sets the RDMA device by name. Default: the one that routes to the server. Over TCP this is an error.
    #[must_use]
    pub fn with_device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
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
        self.gid = Some(index);
        self
    }

    /// Connects from this local address, and through its interface. Default: the route decides.
    #[must_use]
    pub fn with_source(mut self, address: IpAddr) -> Self {
        self.source = Some(address);
        self
    }

    /// Sets how the connection waits for its device. Default [`Polling::Event`]; `Busy` uses a whole CPU. Over TCP,
    /// any other mode is an error.
    #[must_use]
    pub fn with_polling(mut self, mode: Polling) -> Self {
        self.polling = mode;
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
        self.sentinels = Some(Box::new(sentinels));
        self
    }

    /// Makes it the endpoint of an ordinary server, whose address is set next.
    #[must_use]
    pub(crate) fn without_sentinels(mut self) -> Self {
        self.sentinels = None;
        self
    }

    /// Makes it the endpoint of another server with the same settings.
    #[must_use]
    pub(crate) fn with_address(mut self, host: impl Into<String>, port: u16) -> Self {
        self.host = host.into();
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
        tcp.user.clone_from(&self.user);
        tcp.password.clone_from(&self.password);
        (tcp.database, tcp.protocol) = (self.database, self.protocol);
        (tcp.timeout, tcp.source) = (self.timeout, self.source);
        tcp
    }

    /// The transport, or the one tried first.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Host name or address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The user to log in, if not the default user.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password of the login. Take care not to log it.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Database number.
    #[must_use]
    pub fn database(&self) -> u32 {
        self.database
    }

    /// Protocol version.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The limit for a connect as a whole.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Receive window in bytes, if set.
    #[must_use]
    pub fn rx_size(&self) -> Option<u32> {
        self.rx_size
    }

    /// RDMA device, if set.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// The address to connect from, if set.
    #[must_use]
    pub fn source(&self) -> Option<IpAddr> {
        self.source
    }

    /// True if TCP is tried after RDMA.
    #[must_use]
    pub fn fallback(&self) -> bool {
        self.fallback
    }

    /// GID index to connect from, if set.
    #[must_use]
    pub fn gid(&self) -> Option<u32> {
        self.gid
    }

    /// How the connection waits for its device.
    #[must_use]
    pub fn polling(&self) -> Polling {
        self.polling
    }

    /// The Sentinels that report the address, if any.
    #[must_use]
    pub fn sentinels(&self) -> Option<&Sentinels> {
        self.sentinels.as_deref()
    }

    /// How the RDMA port of a node follows from its announced port.
    #[must_use]
    pub fn rdma_port(&self) -> RdmaPort {
        self.rdma_port
    }

    /// The scheme of its URL.
    fn scheme(&self) -> &'static str {
        match self.transport {
            Transport::Rdma => "rdma",
            Transport::Emulated => "emulated",
            Transport::Tcp => "valkey",
        }
    }

    /// The port to connect to over this transport.
    pub(crate) fn port_on(&self, transport: Transport) -> u16 {
        match transport {
            Transport::Tcp => self.tcp_port.unwrap_or(self.port),
            Transport::Rdma | Transport::Emulated => self.port,
        }
    }

    /// `host:port`, with brackets around an IPv6 address. With Sentinels, the name of the service.
    pub(crate) fn authority(&self) -> String {
        if self.sentinels.is_some() {
            self.host.clone()
        } else if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The settings of a [`Stream`](valkey_rdma_transport::Stream) that this endpoint asks for: receive window, RDMA device, GID,
    /// source address and polling. Everything else has its default.
    pub fn transport_config(&self) -> TransportConfig {
        self.apply_to(TransportConfig::default())
    }

    /// Replaces the settings that this endpoint asks for.
    pub(crate) fn apply_to(&self, mut config: TransportConfig) -> TransportConfig {
        if let Some(bytes) = self.rx_size {
            config = config.rx_size(bytes);
        }
        if let Some(name) = &self.device {
            config = config.device(name);
        }
        if let Some(index) = self.gid {
            config = config.gid_index(index);
        }
        if let Some(address) = self.source {
            config = config.source(address);
        }
        if self.polling != Polling::default() {
            config = config.polling(self.polling);
        }
        config
    }

    /// Refuses Sentinels, where the address must be that of a server.
    pub(crate) fn check_direct(&self) -> Result<(), EndpointError> {
        if self.sentinels.is_some() { Err(EndpointError::SentinelHere) } else { Ok(()) }
    }

    /// Refuses what only makes sense for a cluster.
    pub(crate) fn check_single(&self) -> Result<(), EndpointError> {
        match self.rdma_port {
            RdmaPort::Same => Ok(()),
            _ if self.sentinels.is_some() => Ok(()),
            _ => Err(EndpointError::OnlyForClusters { option: "rdma_port" }),
        }
    }

    /// Checks values that the setters accept, and combinations.
    pub(crate) fn check(&self) -> Result<(), EndpointError> {
        if self.host.is_empty() {
            return Err(EndpointError::MissingHost);
        }
        if self.transport != Transport::Rdma && self.gid.is_some() {
            return Err(EndpointError::OnlyOnRdma { option: "gid" });
        }
        if self.transport == Transport::Emulated && self.source.is_some() {
            return Err(EndpointError::NotOnEmulated { option: "source" });
        }
        if self.transport == Transport::Tcp {
            if self.rx_size.is_some() {
                return Err(EndpointError::NotOnTcp { option: "rx_size" });
            }
            if self.device.is_some() {
                return Err(EndpointError::NotOnTcp { option: "device" });
            }
            if self.fallback {
                return Err(EndpointError::NotOnTcp { option: "fallback" });
            }
            if self.polling != Polling::default() {
                return Err(EndpointError::NotOnTcp { option: "poll" });
            }
            if self.rdma_port != RdmaPort::Same {
                return Err(EndpointError::NotOnTcp { option: "rdma_port" });
            }
        }
        match self.rx_size {
            Some(bytes) if !Self::RX_SIZES.contains(&bytes) => Err(EndpointError::BadOption {
                name: "rx_size".to_owned(),
                value: bytes.to_string(),
                allowed: ALLOWED_RX_SIZES,
            }),
            _ => Ok(()),
        }
    }
}

impl TryFrom<&str> for Endpoint {
    type Error = EndpointError;

    fn try_from(text: &str) -> Result<Self, EndpointError> {
        text.parse()
    }
}

impl TryFrom<String> for Endpoint {
    type Error = EndpointError;

    fn try_from(text: String) -> Result<Self, EndpointError> {
        text.parse()
    }
}

impl TryFrom<&String> for Endpoint {
    type Error = EndpointError;

    fn try_from(text: &String) -> Result<Self, EndpointError> {
        text.parse()
    }
}

impl From<&Endpoint> for Endpoint {
    fn from(endpoint: &Endpoint) -> Self {
        endpoint.clone()
    }
}

/// As a URL without options, and with the password replaced by `***`. [`Endpoint::to_url`] has everything.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.scheme();
        let sentinel = if self.sentinels.is_some() { "+sentinel" } else { "" };
        write!(f, "{scheme}{sentinel}://")?;
        if self.password.is_some() {
            write!(f, "{}:***@", self.user.as_deref().unwrap_or(""))?;
        }
        match &self.sentinels {
            Some(sentinels) => write!(f, "{sentinels}/{}", sentinels.service())?,
            None => write!(f, "{}", self.authority())?,
        }
        if self.database != 0 {
            write!(f, "/{}", self.database)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("url", &self.to_string())
            .field("protocol", &self.protocol)
            .field("timeout", &self.timeout)
            .field("rx_size", &self.rx_size)
            .field("device", &self.device)
            .field("gid", &self.gid)
            .field("fallback", &self.fallback)
            .field("source", &self.source)
            .field("polling", &self.polling)
            .field("rdma_port", &self.rdma_port)
            .finish()
    }
}

/// [`Endpoint::RX_SIZES`] in words.
const ALLOWED_RX_SIZES: &str = "a number of bytes from 65536 to 16777216";

#[cfg(test)]
mod tests;
