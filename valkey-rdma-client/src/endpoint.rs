//! [`Endpoint`]: the address, transport, login and options of a server; from a URL or built in code.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use valkey_rdma_resp::Protocol;
use valkey_rdma_transport::{Config as TransportConfig, Polling, UrlOptions};

mod cluster;
mod error;
mod login;
mod options;
mod rdma_port;
mod sentinels;
mod setters;
mod url;

pub use self::error::EndpointError;
use self::login::Login;
pub use self::rdma_port::RdmaPort;
pub use self::sentinels::Sentinels;
pub(crate) use self::url::authority;
use self::url::canonical;

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
/// Shape of the URL: `scheme://[[user]:password@]host[:port][/database][?option=value&...]`, with user, password, host and values
/// percent-encoded and IPv6 addresses in brackets. A `+` is a plus sign everywhere, not a blank. A link-local address has its interface,
/// by name or number, behind `%25` as [RFC 6874](https://www.rfc-editor.org/rfc/rfc6874) writes it, or behind `%` as `ping` takes it:
/// `rdma://[fe80::1%25eth0]:6379`. The interface is looked up when the client connects.
///
/// | part | meaning |
/// |---|---|
/// | scheme | `rdma`, `emulated`, or `valkey` and `redis` for TCP; with `+cluster` or `+sentinel` behind it, see below |
/// | user, password | for AUTH; `:password@` alone logs in the default user; `user:@` logs in with an empty password |
/// | port | 6379 unless given |
/// | database | for SELECT; 0 unless given |
/// | `protocol=` | `resp3` (default) or `resp2`; proxies such as Envoy and twemproxy need `resp2` |
/// | `timeout=` | limit for resolving, connecting and logging in together, as `500ms`, `5s` or `1m`; 5 s unless given |
/// | `rx_size=` | receive window in bytes, 65536 to 16777216; not on TCP |
/// | `device=` | name of the RDMA device, or of the emulated one (`inprocess`, `tcp`, `unix:DIR`; chosen automatically unless given); not on TCP |
/// | `gid=` | index into the RDMA device's table of GIDs, which chooses the address to connect from; `rdma` only |
/// | `source=` | address of this machine to connect from; not on the emulated device |
/// | `poll=` | `event` (default), `busy` or `adaptive`, see [`Polling`]; not on TCP |
/// | `fallback=` | `tcp`: if RDMA fails, connect to the same host and port over TCP, and report it; not on TCP |
/// | `rdma_port=` | RDMA port of a node that was announced with its TCP port: `same` (default), `+N`, `N` or `discover`, see [`RdmaPort`]; for clusters, not on TCP |
///
/// # Cluster
/// `rdma+cluster://[[user]:password@]host[:port][,host[:port]...][/database][?option=value&...]` names nodes of a cluster.
/// [`Client`](crate::Client) asks them for the others; one that answers is enough, and none of them is special afterwards. A list of
/// URLs of single servers, `["rdma://host1", "rdma://host2"]`, means the same. All nodes have the same scheme, login and options.
///
/// # Sentinel
/// `rdma+sentinel://[[user]:password@]sentinel[:port][,sentinel[:port]...]/service[/database][?option=value&...]` names the primary
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
    login: Login,
    database: u32,
    protocol: Protocol,
    timeout: Duration,
    /// What it says about the transport.
    settings: UrlOptions,
    fallback: bool,
    rdma_port: RdmaPort,
    /// The server is the primary that these report.
    sentinels: Option<Box<Sentinels>>,
    /// The server is a node of a cluster, as these are.
    other_seeds: Option<Box<[(String, u16)]>>,
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
    pub const RX_SIZES: RangeInclusive<u32> = TransportConfig::URL_RX_SIZES;

    /// A server without login, on database 0, with every option at its default. `host` is a name or an address; an IPv6 address may have
    /// brackets. Connecting refuses an empty host, and port 0.
    #[must_use]
    pub fn new(transport: Transport, host: impl Into<String>, port: u16) -> Self {
        Self {
            transport,
            host: canonical(host.into()),
            port,
            login: Login::default(),
            database: 0,
            protocol: Protocol::default(),
            timeout: Self::DEFAULT_TIMEOUT,
            settings: UrlOptions::default(),
            fallback: false,
            rdma_port: RdmaPort::Same,
            sentinels: None,
            other_seeds: None,
            tcp_port: None,
        }
    }

    /// The transport, or the one tried first.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Host name or address, without brackets. A link-local address has its interface: `fe80::1%eth0`.
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
        self.login.user.as_deref()
    }

    /// The password of the login. Take care not to log it.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.login.password.as_deref()
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
        self.settings.rx_size
    }

    /// RDMA device, if set.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        self.settings.device.as_deref()
    }

    /// The address to connect from, if set.
    #[must_use]
    pub fn source(&self) -> Option<IpAddr> {
        self.settings.source
    }

    /// True if TCP is tried after RDMA.
    #[must_use]
    pub fn fallback(&self) -> bool {
        self.fallback
    }

    /// GID index to connect from, if set.
    #[must_use]
    pub fn gid(&self) -> Option<u32> {
        self.settings.gid
    }

    /// How the connection waits for its device.
    #[must_use]
    pub fn polling(&self) -> Polling {
        self.settings.polling
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

    /// The port to connect to over this transport.
    pub(crate) fn port_on(&self, transport: Transport) -> u16 {
        match transport {
            Transport::Tcp => self.tcp_port.unwrap_or(self.port),
            Transport::Rdma | Transport::Emulated => self.port,
        }
    }

    /// `host:port`, with brackets around an IPv6 address. With Sentinels, the name of the service.
    pub(crate) fn authority(&self) -> String {
        match self.sentinels {
            Some(_) => self.host.clone(),
            None => authority(&self.host, self.port),
        }
    }

    /// The settings of a [`Stream`](valkey_rdma_transport::Stream) that this endpoint asks for: receive window, RDMA device, GID,
    /// source address and polling. Everything else has its default.
    pub fn transport_config(&self) -> TransportConfig {
        self.apply_to(TransportConfig::default())
    }

    /// Replaces the settings that this endpoint asks for.
    pub(crate) fn apply_to(&self, config: TransportConfig) -> TransportConfig {
        self.settings.apply_to(config)
    }
}

impl From<&Endpoint> for Endpoint {
    fn from(endpoint: &Endpoint) -> Self {
        endpoint.clone()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Endpoint");
        shown.field("url", &self.to_string());
        for (name, value) in self.options().filter(|(name, _)| *name != "sentinel_password") {
            shown.field(name, &value);
        }
        shown.finish()
    }
}

#[cfg(test)]
mod round_trip_tests;
#[cfg(test)]
mod tests;
