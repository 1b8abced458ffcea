//! [`Endpoint`]: its settings, with a method to read and one to set each.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use valkey_rdma_resp::Protocol;
use valkey_rdma_transport::tls::ClientTls;
use valkey_rdma_transport::{Config as TransportConfig, Polling, UrlOptions, address};

use super::url::canonical;
use super::{Login, RdmaPort, Sentinels, Transport};

const NANOS_PER_MILLI: u128 = 1_000_000;

/// A server to connect to.
///
/// Shape of the URL: `scheme://[[user]:password@]host[:port][/database][?option=value&...]`, with user, password, host and values
/// percent-encoded and IPv6 addresses in brackets. A `+` is a plus sign everywhere, not a blank. A link-local address has its interface,
/// by name or number, behind `%25` as [RFC 6874](https://www.rfc-editor.org/rfc/rfc6874) writes it, or behind `%` as `ping` takes it:
/// `rdma://[fe80::1%25eth0]:6379`. The interface is looked up when the client connects.
///
/// | part | meaning |
/// |---|---|
/// | scheme | `rdma`, `emulated`, or `valkey` and `redis` for TCP; `rdmas`, `valkeys` and `rediss` for TLS over them; with `+cluster` or `+sentinel` behind it, see below |
/// | user, password | for AUTH; `:password@` alone logs in the default user; `user:@` logs in with an empty password |
/// | port | 6379 unless given |
/// | database | for SELECT; 0 unless given |
/// | `protocol=` | `resp3` (default) or `resp2`; proxies such as Envoy and twemproxy need `resp2` |
/// | `timeout=` | limit for resolving, connecting and logging in together, as `500ms`, `5s` or `1m`; 5 s unless given |
/// | `password_file=` | file that holds the password, instead of one in the URL: `app@host?password_file=/run/secrets/app`; read again at each connect, see [`with_password_file`](Self::with_password_file) |
/// | `rx_size=` | receive window in bytes, 65536 to 16777216; not on TCP |
/// | `send_buffer=` | send buffer in bytes, 65536 to 16777216; not on TCP |
/// | `side_buffers=` | window and send buffer in bytes of connections that carry little, such as those for blocking commands: 65536 (default) to 16777216, see [`with_side_buffers`](Self::with_side_buffers); not on TCP |
/// | `device=` | name of the RDMA device, or of the emulated one (`inprocess`, `tcp`, `unix:DIR`; chosen automatically unless given); not on TCP |
/// | `gid=` | index into the RDMA device's table of GIDs, which chooses the address to connect from; `rdma` only |
/// | `source=` | address of this machine to connect from; not on the emulated device |
/// | `poll=` | `event` (default), `busy` or `adaptive`, see [`Polling`]; not on TCP |
/// | `fallback=` | `tcp`: if RDMA fails, connect to the same host and port over TCP, and report it; not on TCP. With TLS, that is encrypted too |
/// | `rdma_port=` | RDMA port of a node that was announced with its TCP port: `same` (default), `+N`, `N` or `discover`, see [`RdmaPort`]; for clusters, not on TCP |
/// | `direct_prefix=` | prefix of the commands of [direct transfers](crate::Client::get_direct); `BLOB` unless given, for BLOB.GET and BLOB.SET; not on TCP |
/// | `ca=` | file of issuers (PEM) that are trusted instead of the system's; TLS only, as the six below |
/// | `cert=` | file of the client's certificate (PEM), for servers that ask for one |
/// | `key=` | file of its private key (PEM) |
/// | `server_name=` | name that the server's certificate must have; the host unless given |
/// | `verify=` | `full` (default), `ca` (any name) or `none` (any certificate; each connect logs a warning) |
/// | `ciphers=` | cipher suites for TLS 1.2, by OpenSSL's names with colons between them; all that rustls has unless given |
/// | `ciphersuites=` | the same for TLS 1.3 |
/// | `db=` | database for SELECT; at a Unix socket only |
///
/// # Unix socket
/// `unix://[[user]:password@]/path[?option=value&...]` names a server at a Unix socket of this machine, by an absolute path of at most 107
/// bytes. `redis+unix` and `valkey+unix` mean the same. Its options are `db=` for the database, `protocol=` and `timeout=`. There is no TLS, because
/// the bytes do not leave the machine.
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
/// `sentinel_user=` and `sentinel_password=` or `sentinel_password_file=` those of the Sentinels. With a scheme of TLS, Sentinels are asked over TLS too, with the
/// same options; `sentinel_tls=no` asks them without. `rdma_port=` applies as for clusters. The host of such an
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
    pub(super) transport: Transport,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) login: Login,
    pub(super) database: u32,
    pub(super) protocol: Protocol,
    pub(super) timeout: Duration,
    /// What it says about the transport.
    pub(super) settings: UrlOptions,
    pub(super) side_buffers: Option<u32>,
    pub(super) fallback: bool,
    pub(super) rdma_port: RdmaPort,
    pub(super) direct_prefix: Option<String>,
    /// The server is the primary that these report.
    pub(super) sentinels: Option<Box<Sentinels>>,
    /// The server is a node of a cluster, as these are.
    pub(super) other_seeds: Option<Box<[(String, u16)]>>,
    /// The port of the fallback, if it is another.
    pub(super) tcp_port: Option<u16>,
    /// The settings of TLS. `None`: connections are not encrypted.
    pub(super) tls: Option<Box<ClientTls>>,
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

    /// Values of [`with_send_buffer`](Self::with_send_buffer), in bytes.
    pub const SEND_BUFFERS: RangeInclusive<u32> = TransportConfig::URL_SEND_BUFFERS;

    /// Values of [`with_side_buffers`](Self::with_side_buffers), in bytes: those of a window.
    pub const SIDE_BUFFERS: RangeInclusive<u32> = Self::RX_SIZES;

    /// A server without login, on database 0, with every option at its default. `host` is a name or an address; an IPv6 address may have
    /// brackets. Connecting refuses an empty host, and port 0. At a Unix socket, `host` is its absolute path of at most 107 bytes, and `port`
    /// is not used.
    #[must_use]
    pub fn new(transport: Transport, host: impl Into<String>, port: u16) -> Self {
        Self {
            transport,
            host: canonical(host.into()),
            port: if transport == Transport::Unix { Self::DEFAULT_PORT } else { port },
            login: Login::default(),
            database: 0,
            protocol: Protocol::default(),
            timeout: Self::DEFAULT_TIMEOUT,
            settings: UrlOptions::default(),
            side_buffers: None,
            fallback: false,
            rdma_port: RdmaPort::Same,
            direct_prefix: None,
            sentinels: None,
            other_seeds: None,
            tcp_port: None,
            tls: None,
        }
    }

    /// The transport, or the one tried first.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Host name or address, without brackets. A link-local address has its interface: `fe80::1%eth0`. Of a Unix socket, the path.
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

    /// The file that holds the password of the login, if one is set.
    #[must_use]
    pub fn password_file(&self) -> Option<&Path> {
        self.login.password_file.as_deref()
    }

    /// True if connections log in: with a [password](Self::password), or with that of a [file](Self::password_file).
    #[must_use]
    pub fn has_login(&self) -> bool {
        self.login.is_some()
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

    /// Send buffer in bytes, if set.
    #[must_use]
    pub fn send_buffer(&self) -> Option<u32> {
        self.settings.send_buffer
    }

    /// Windows and send buffer in bytes of connections that carry little, if set.
    #[must_use]
    pub fn side_buffers(&self) -> Option<u32> {
        self.side_buffers
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

    /// How the connection waits for its device; [`Polling::Event`] if that is not set.
    #[must_use]
    pub fn polling(&self) -> Polling {
        self.settings.polling.unwrap_or_default()
    }

    /// The Sentinels that report the address, if any.
    #[must_use]
    pub fn sentinels(&self) -> Option<&Sentinels> {
        self.sentinels.as_deref()
    }

    /// The settings of TLS; `None` if connections are not encrypted.
    #[must_use]
    pub fn tls(&self) -> Option<&ClientTls> {
        self.tls.as_deref()
    }

    /// How the RDMA port of a node follows from its announced port.
    #[must_use]
    pub fn rdma_port(&self) -> RdmaPort {
        self.rdma_port
    }

    /// The prefix of the commands of direct transfers.
    #[must_use]
    pub fn direct_prefix(&self) -> &str {
        self.direct_prefix.as_deref().unwrap_or("BLOB")
    }

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

    /// Sets the user, and the file that holds its password, for passwords that change. Replaces an earlier login. An empty name stands for the
    /// default user.
    ///
    /// The client reads the file for every connection that it makes, so a new password needs no new client: write it to the file before
    /// the server refuses the old one. If the server refuses a password and the file has another one by then, the client tries that at once.
    /// Connections that are logged in stay.
    ///
    /// Shape of the file: the password alone, 1 to 4096 bytes of UTF-8 in one line, whose end is not part of it. Connecting fails with
    /// [`ConnectCause::Password`](crate::ConnectCause::Password) if the file cannot be read or holds something else. Its permissions are
    /// not checked. A relative path is below the working directory.
    #[must_use]
    pub fn with_password_file(mut self, user: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        self.login = Login::with_file(user.into(), path.into());
        self
    }

    /// Takes the login of another endpoint: its user, and its password or the file that holds it.
    #[must_use]
    pub fn with_login_of(mut self, other: &Self) -> Self {
        self.login.clone_from(&other.login);
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

    /// Sets the longest send buffer in bytes. Default: the transport's, 1 MiB and 64 KiB: a connection pins 64 KiB until it has more to send
    /// at once, and then the rest until it is [quiet](TransportConfig::send_buffer). Smaller blocks writers of large values earlier; larger pins more memory. Range
    /// [`SEND_BUFFERS`](Self::SEND_BUFFERS), 65536 to 16777216. Connecting with a value outside, or over TCP with any value, is an error.
    #[must_use]
    pub fn with_send_buffer(mut self, bytes: u32) -> Self {
        self.settings.send_buffer = Some(bytes);
        self
    }

    /// Sets the length in bytes of the windows and of the send buffer of connections that carry little: those for blocking commands, WATCH,
    /// commands that overtake others, direct transfers, and subscribers. Default: [`Config::side_buffers`](crate::Config::side_buffers),
    /// which says what it costs; this replaces it. Windows and send buffers that are shorter by [`with_rx_size`](Self::with_rx_size) and
    /// [`with_send_buffer`](Self::with_send_buffer), or by default, stay so. Range [`SIDE_BUFFERS`](Self::SIDE_BUFFERS), 65536 to 16777216.
    /// Connecting with a value outside, or over TCP with any value, is an error.
    #[must_use]
    pub fn with_side_buffers(mut self, bytes: u32) -> Self {
        self.side_buffers = Some(bytes);
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

    /// Sets how the connection waits for its device. Default: as [`Config::transport`](crate::Config::transport) has it, and that is
    /// [`Polling::Event`] unless set; `Busy` uses a whole CPU. Connecting over TCP with any mode is an error.
    #[must_use]
    pub fn with_polling(mut self, mode: Polling) -> Self {
        self.settings.polling = Some(mode);
        self
    }

    /// Sets how the RDMA port of a node follows from the port that its cluster announces. Default
    /// [`RdmaPort::Same`]. An endpoint of a single server, or over TCP, must keep the default.
    #[must_use]
    pub fn with_rdma_port(mut self, rule: RdmaPort) -> Self {
        self.rdma_port = rule;
        self
    }

    /// Sets the prefix of the commands of [direct transfers](crate::Client::get_direct). Default `BLOB`: the commands are BLOB.GET and
    /// BLOB.SET. Values that go over the stream go by GET and SET. An empty prefix is an error, and so is any over TCP.
    #[must_use]
    pub fn with_direct_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.direct_prefix = Some(prefix.into());
        self
    }

    /// Encrypts all connections with TLS: also those of the [fallback](Self::with_fallback), to each node of a
    /// [cluster](Self::with_cluster), and to [Sentinels](Self::with_sentinels) unless they are [without](Sentinels::without_tls). Over RDMA,
    /// the server must offer it (spec clause F-5); Valkey's own does not. Default: not encrypted. Needs cargo feature `tls`: without, connecting
    /// fails with [`TlsError::NotBuilt`](crate::TlsError::NotBuilt).
    #[must_use]
    pub fn with_tls(mut self, settings: ClientTls) -> Self {
        self.tls = Some(Box::new(settings));
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

    /// Makes it an endpoint over TCP, without the settings that make no sense there. A link-local address as in
    /// [`with_address`](Self::with_address).
    pub(crate) fn over_tcp(&self, host: impl Into<String>, port: u16) -> Self {
        let host = address::on_interface_of(host.into(), &self.host);
        let mut tcp = Self::new(Transport::Tcp, host, port);
        tcp.login.clone_from(&self.login);
        (tcp.database, tcp.protocol) = (self.database, self.protocol);
        (tcp.timeout, tcp.settings.source) = (self.timeout, self.settings.source);
        tcp.tls.clone_from(&self.tls);
        tcp
    }
}
