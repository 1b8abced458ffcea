//! [`Endpoint`]: where to connect, how, and as whom; from a URL or built in code.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use url::{Host, Url};

/// What carries the bytes.
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

/// The version of the serialization protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// RESP2: every server speaks it. `protocol=resp2`.
    Resp2,
    /// RESP3: typed replies; every Valkey, and Redis since 6.0. `protocol=resp3`, the default.
    #[default]
    Resp3,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resp2 => "resp2",
            Self::Resp3 => "resp3",
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
/// | scheme | `rdma`, `emulated`, or `valkey` and `redis` for TCP |
/// | user, password | for AUTH; `:password@` alone logs in the default user |
/// | port | 6379 unless given |
/// | database | for SELECT; 0 unless given |
/// | `protocol=` | `resp3` (default) or `resp2` |
/// | `timeout=` | limit for resolving, connecting and logging in together, as `500ms`, `5s` or `1m`; 5 s unless given |
/// | `rx_size=` | receive buffer in bytes that the server may fill before we answer; not on TCP |
/// | `device=` | name of the RDMA device; not on TCP |
/// | `poll=` | `event`; not on TCP |
///
/// ```
/// use valkey_rdma_client::{Endpoint, Transport};
///
/// let endpoint: Endpoint = "rdma://app:s%40cret@[fd00::7]:6380/2?rx_size=1048576&timeout=2s".parse()?;
/// assert_eq!(endpoint.transport(), Transport::Rdma);
/// assert_eq!((endpoint.host(), endpoint.port(), endpoint.database()), ("fd00::7", 6380, 2));
/// assert_eq!(endpoint.to_string(), "rdma://app:***@[fd00::7]:6380/2");
///
/// let mut same = Endpoint::new(Transport::Rdma, "fd00::7", 6380);
/// same.set_login("app", "s@cret").set_database(2);
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
}

impl Endpoint {
    /// The port of a URL that names none.
    pub const DEFAULT_PORT: u16 = 6379;
    /// The connect timeout unless set.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

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
        }
    }

    /// Logs in as this user. The default user has the name `default`.
    pub fn set_login(&mut self, user: impl Into<String>, password: impl Into<String>) -> &mut Self {
        self.user = Some(user.into());
        self.password = Some(password.into());
        self
    }

    /// Logs in the default user with this password.
    pub fn set_password(&mut self, password: impl Into<String>) -> &mut Self {
        self.user = None;
        self.password = Some(password.into());
        self
    }

    /// Selects a database after the login. Default 0.
    pub fn set_database(&mut self, database: u32) -> &mut Self {
        self.database = database;
        self
    }

    /// Sets the protocol version. Default [`Protocol::Resp3`].
    pub fn set_protocol(&mut self, protocol: Protocol) -> &mut Self {
        self.protocol = protocol;
        self
    }

    /// Limits the whole of a connect: resolving, connecting, logging in. Default 5 s. A short limit gives up on busy
    /// servers, a long one delays the news of a dead one.
    pub fn set_timeout(&mut self, timeout: Duration) -> &mut Self {
        self.timeout = timeout;
        self
    }

    /// Sets the receive buffer in bytes. Default: the transport's. A small one costs round trips for large replies,
    /// a large one pins memory, here and on the server. Range 1 byte to 1 GiB; values outside are brought to the
    /// nearest end. Connecting over TCP with it is an error.
    pub fn set_rx_size(&mut self, bytes: u32) -> &mut Self {
        self.rx_size = Some(bytes.clamp(1, MAX_RX_SIZE));
        self
    }

    /// Names the RDMA device to use. Default: the one that routes to the server. Connecting over TCP with it is an
    /// error.
    pub fn set_device(&mut self, name: impl Into<String>) -> &mut Self {
        self.device = Some(name.into());
        self
    }

    /// What carries the bytes.
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

    /// The password to log in with. Mind where you print it.
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

    /// Limit for the whole of a connect.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Receive buffer in bytes, if set.
    #[must_use]
    pub fn rx_size(&self) -> Option<u32> {
        self.rx_size
    }

    /// RDMA device, if set.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// `host:port`, with brackets around an IPv6 address.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Refuses what only makes no sense together.
    pub(crate) fn check(&self) -> Result<(), EndpointError> {
        if self.host.is_empty() {
            return Err(EndpointError::MissingHost);
        }
        if self.transport == Transport::Tcp {
            if self.rx_size.is_some() {
                return Err(EndpointError::NotOnTcp { option: "rx_size" });
            }
            if self.device.is_some() {
                return Err(EndpointError::NotOnTcp { option: "device" });
            }
        }
        Ok(())
    }

    fn set_option(&mut self, name: &str, value: &str) -> Result<(), EndpointError> {
        let bad =
            |allowed| EndpointError::BadOption { name: name.to_owned(), value: value.to_owned(), allowed };
        match name {
            "protocol" => match value {
                "resp2" => self.protocol = Protocol::Resp2,
                "resp3" => self.protocol = Protocol::Resp3,
                _ => return Err(bad("resp2 or resp3")),
            },
            "timeout" => self.timeout = parse_duration(value).ok_or_else(|| bad(ALLOWED_DURATION))?,
            "rx_size" => match value.parse() {
                Ok(bytes) if (1..=MAX_RX_SIZE).contains(&bytes) => self.rx_size = Some(bytes),
                _ => return Err(bad("a number of bytes from 1 to 1073741824")),
            },
            "device" if value.is_empty() => return Err(bad("the name of an RDMA device")),
            "device" => self.device = Some(value.to_owned()),
            "poll" if self.transport == Transport::Tcp => {
                return Err(EndpointError::NotOnTcp { option: "poll" });
            }
            "poll" => match value {
                "event" => {}
                "busy" | "adaptive" => {
                    return Err(EndpointError::Unsupported { option: format!("poll={value}") });
                }
                _ => return Err(bad("event")),
            },
            "fallback" => match value {
                "tcp" => return Err(EndpointError::Unsupported { option: format!("fallback={value}") }),
                _ => return Err(bad("tcp")),
            },
            _ => return Err(EndpointError::UnknownOption { name: name.to_owned() }),
        }
        Ok(())
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let Some((scheme, _)) = text.split_once("://") else { return Err(EndpointError::NotAUrl) };
        let transport = match scheme.to_ascii_lowercase().as_str() {
            "rdma" => Transport::Rdma,
            "emulated" => Transport::Emulated,
            "valkey" | "redis" => Transport::Tcp,
            _ => return Err(EndpointError::UnknownScheme { scheme: scheme.to_owned() }),
        };
        if text.contains('#') {
            return Err(EndpointError::Fragment);
        }
        let url = Url::parse(text).map_err(EndpointError::Syntax)?;
        let host = match url.host() {
            Some(Host::Domain(name)) if !name.is_empty() => name.to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            _ => return Err(EndpointError::MissingHost),
        };
        let port = match url.port() {
            Some(0) => return Err(EndpointError::PortZero),
            other => other.unwrap_or(Self::DEFAULT_PORT),
        };

        let mut endpoint = Self::new(transport, host, port);
        match (url.username(), url.password()) {
            ("", None) => {}
            ("", Some(password)) => endpoint.password = Some(percent_decode(password)?),
            (_, None) => return Err(EndpointError::UserWithoutPassword),
            (user, Some(password)) => {
                endpoint.user = Some(percent_decode(user)?);
                endpoint.password = Some(percent_decode(password)?);
            }
        }
        endpoint.database = match url.path() {
            "" | "/" => 0,
            path => path
                .strip_prefix('/')
                .and_then(|number| number.parse().ok())
                .ok_or_else(|| EndpointError::BadDatabase { path: path.to_owned() })?,
        };
        let mut seen: Vec<Cow<'_, str>> = Vec::new();
        for (name, value) in url.query_pairs() {
            if seen.contains(&name) {
                return Err(EndpointError::RepeatedOption { name: name.into_owned() });
            }
            endpoint.set_option(&name, &value)?;
            seen.push(name);
        }
        endpoint.check()?;
        Ok(endpoint)
    }
}

impl TryFrom<&str> for Endpoint {
    type Error = EndpointError;

    fn try_from(text: &str) -> Result<Self, EndpointError> {
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

/// As a URL without options, and with the password replaced by `***`.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.transport {
            Transport::Rdma => "rdma",
            Transport::Emulated => "emulated",
            Transport::Tcp => "valkey",
        };
        write!(f, "{scheme}://")?;
        if self.password.is_some() {
            write!(f, "{}:***@", self.user.as_deref().unwrap_or(""))?;
        }
        write!(f, "{}", self.authority())?;
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
            .finish()
    }
}

/// Why a URL, or an endpoint built in code, makes no sense. Never contains the password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// No `scheme://`.
    #[error("not a URL: expected rdma://host:port, emulated://host:port or valkey://host:port")]
    NotAUrl,
    /// A scheme that is not ours.
    #[error("unknown URL scheme \"{scheme}\": use rdma, emulated, valkey or redis")]
    UnknownScheme {
        /// As given.
        scheme: String,
    },
    /// The text breaks the syntax of URLs.
    #[error("bad URL: {0} (write special characters in user and password as %XX)")]
    Syntax(url::ParseError),
    /// A `#` in the URL, which is nearly always a password that is not percent-encoded.
    #[error("a URL here has no part after '#': write a '#' in a password as %23")]
    Fragment,
    /// A URL without a host.
    #[error("the URL names no host: expected scheme://host:port")]
    MissingHost,
    /// Port 0.
    #[error("port 0 cannot be connected to: use 1 to 65535")]
    PortZero,
    /// A user but no password.
    #[error("the URL names a user but no password: expected user:password@host")]
    UserWithoutPassword,
    /// User or password has a broken `%` sequence, or decodes to something that is not UTF-8.
    #[error("user or password is not percent-encoded UTF-8: write '%' as %25")]
    BadEncoding,
    /// The path is not a database number.
    #[error("bad database \"{path}\": expected a number such as /0")]
    BadDatabase {
        /// The path as given.
        path: String,
    },
    /// An option that does not exist.
    #[error("unknown URL option \"{name}\": use protocol, timeout, rx_size, device or poll")]
    UnknownOption {
        /// As given.
        name: String,
    },
    /// An option given twice.
    #[error("URL option \"{name}\" is given twice")]
    RepeatedOption {
        /// As given.
        name: String,
    },
    /// An option with a value out of range.
    #[error("bad value \"{value}\" for URL option {name}: use {allowed}")]
    BadOption {
        /// The option.
        name: String,
        /// Its value as given.
        value: String,
        /// What it can be.
        allowed: &'static str,
    },
    /// An option of RDMA on a TCP endpoint.
    #[error("option {option} makes no sense over TCP: use it with rdma:// or emulated://")]
    NotOnTcp {
        /// The option.
        option: &'static str,
    },
    /// An option that is reserved and not built yet.
    #[error("{option} is not supported yet: leave it out")]
    Unsupported {
        /// Option and value.
        option: String,
    },
}

/// The largest window that the transport makes.
const MAX_RX_SIZE: u32 = 1 << 30;
const ALLOWED_DURATION: &str = "a number above 0 with ms, s or m, such as 500ms or 5s";

fn parse_duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        _ => None,
    }
}

fn percent_decode(text: &str) -> Result<String, EndpointError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = rest.split_at_checked(2).ok_or(EndpointError::BadEncoding)?;
        let hex = |digit: u8| char::from(digit).to_digit(16);
        match (hex(digits.0[0]), hex(digits.0[1])) {
            (Some(high), Some(low)) => decoded.push((high * 16 + low) as u8),
            _ => return Err(EndpointError::BadEncoding),
        }
        rest = digits.1;
    }
    String::from_utf8(decoded).map_err(|_| EndpointError::BadEncoding)
}

#[cfg(test)]
mod tests;
