//! [`Endpoint`] from the text of a URL, and as a URL.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use url::{Host, Url};
use valkey_rdma_transport::{Polling, address};

use super::authority::{authority, authority_in_url};
use super::check::{ALLOWED_DEVICES, ALLOWED_RX_SIZES};
use super::percent::{encode_value, percent_decode, percent_encode, query_pairs};
use super::rdma_port::RdmaPort;
use super::{Endpoint, EndpointError, Protocol, Transport};

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        // A text with a user and a password before `://` is none either: no error may quote these as its scheme.
        let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
            return Err(EndpointError::NotAUrl);
        };
        let lower = scheme.to_ascii_lowercase();
        let several = lower.rsplit_once('+').filter(|(plain, _)| is_known(plain));
        if let Some((plain, kind @ ("sentinel" | "cluster"))) = several {
            check_separators(rest)?;
            return match kind {
                "sentinel" => super::sentinels::parse(plain, rest),
                _ => super::cluster::parse(plain, rest),
            };
        }
        let transport = match lower.as_str() {
            "rdma" => Transport::Rdma,
            "emulated" => Transport::Emulated,
            "valkey" | "redis" => Transport::Tcp,
            _ => return Err(EndpointError::UnknownScheme { scheme: scheme.to_owned() }),
        };
        if text.contains('#') {
            return Err(EndpointError::Fragment);
        }
        check_separators(rest)?;
        let place = rest.split(['/', '?']).next().unwrap_or_default();
        let (login, hosts) = place.rsplit_once('@').unwrap_or(("", place));
        if hosts.contains(',') {
            return Err(EndpointError::SeveralHosts);
        }
        let (text, zone) = without_zone(text);
        let url = Url::parse(&text).map_err(|error| EndpointError::Syntax { reason: error.to_string() })?;
        let host = match url.host() {
            Some(Host::Domain(name)) if !name.is_empty() => percent_decode(name)?,
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => format!("{address}{zone}"),
            _ => return Err(EndpointError::MissingHost),
        };
        let port = match url.port() {
            Some(0) => return Err(EndpointError::PortZero),
            other => other.unwrap_or(Self::DEFAULT_PORT),
        };

        let mut endpoint = Self::new(transport, host, port);
        // An empty password is none to the crate.
        endpoint = match (url.username(), login.contains(':')) {
            ("", false) => endpoint,
            (_, false) => return Err(EndpointError::UserWithoutPassword),
            (user, true) => {
                endpoint.with_login(percent_decode(user)?, percent_decode(url.password().unwrap_or(""))?)
            }
        };
        endpoint.database = match url.path() {
            "" | "/" => 0,
            path => path
                .strip_prefix('/')
                .and_then(|number| number.parse().ok())
                .ok_or(EndpointError::BadDatabase)?,
        };
        let query = url.query().unwrap_or_default();
        // Before one is quoted: it may be the rest of a password behind a bare `?`, in a URL without a host.
        if query.split('&').any(|option| !option.is_empty() && !option.contains('=')) {
            return Err(EndpointError::OptionWithoutValue);
        }
        let mut seen: Vec<String> = Vec::new();
        for pair in query_pairs(query) {
            let (name, value) = pair?;
            if seen.contains(&name) {
                return Err(EndpointError::RepeatedOption { name });
            }
            endpoint.set_option(&name, &value)?;
            seen.push(name);
        }
        endpoint.check()?;
        Ok(endpoint)
    }
}

/// The URL without the zone of its IPv6 address, which the syntax of URLs does not have; and that zone behind a `%`.
fn without_zone(url: &str) -> (Cow<'_, str>, String) {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?']).map_or(url.len(), |at| start + at);
    // A password may have brackets.
    let start = url[start..end].rfind('@').map_or(start, |at| start + at + 1);
    let parts = || {
        let (ip, _) = url[start..end].strip_prefix('[')?.split_once('%')?;
        let open = start + 1;
        let close = open + url[open..end].rfind(']')?;
        let host = address::from_url(url.get(open..close)?).into_owned();
        let (_, zone) = host.split_once('%')?;
        Some((format!("{}{ip}{}", &url[..open], &url[close..]), format!("%{zone}")))
    };
    parts().map_or((url.into(), String::new()), |(url, zone)| (url.into(), zone))
}

/// True for the scheme of a single server.
fn is_known(scheme: &str) -> bool {
    ["rdma", "emulated", "valkey", "redis"].contains(&scheme)
}

/// RFC 3986, section 3.1.
fn is_scheme(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Refuses an `@` after the first `/` or `?` of what follows `://`. The text between may be most of a password, so that no error
/// may quote it before this check.
fn check_separators(rest: &str) -> Result<(), EndpointError> {
    match rest.split_once(['/', '?']) {
        Some((_, after)) if after.contains('@') => Err(EndpointError::BareSeparator),
        _ => Ok(()),
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

/// As a URL without options, and with the password replaced by `***`. [`Endpoint::to_url`] has everything.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme())?;
        if self.password.is_some() {
            write!(f, "{}:***@", self.user.as_deref().unwrap_or(""))?;
        }
        match &self.sentinels {
            Some(sentinels) => write!(f, "{sentinels}/{}", sentinels.service())?,
            None => write!(f, "{}", self.authority())?,
        }
        for (host, port) in self.other_seeds.iter().flatten() {
            write!(f, ",{}", authority(host, *port))?;
        }
        if self.database != 0 {
            write!(f, "/{}", self.database)?;
        }
        Ok(())
    }
}

impl Endpoint {
    /// The URL of this endpoint with its login and all options. Parsing it gives an equal endpoint, or the error that connecting gives too.
    /// It contains the passwords: use `Display` for logs.
    ///
    /// ```
    /// use valkey_rdma_client::{Endpoint, Transport};
    ///
    /// let endpoint = Endpoint::new(Transport::Rdma, "10.0.0.7", 6379).with_login("app", "s@cret").with_rx_size(65536);
    /// assert_eq!(endpoint.to_url(), "rdma://app:s%40cret@10.0.0.7:6379?rx_size=65536");
    /// assert_eq!(endpoint.to_url().parse(), Ok(endpoint));
    /// ```
    #[must_use]
    pub fn to_url(&self) -> String {
        let login = match (&self.user, &self.password) {
            (user, Some(password)) => {
                format!("{}:{}@", percent_encode(user.as_deref().unwrap_or("")), percent_encode(password))
            }
            _ => String::new(),
        };
        let mut place = match &self.sentinels {
            Some(sentinels) => format!("{}/{}", sentinels.in_url(), percent_encode(sentinels.service())),
            None => authority_in_url(&self.host, self.port),
        };
        for (host, port) in self.other_seeds.iter().flatten() {
            place.push_str(&format!(",{}", authority_in_url(host, *port)));
        }
        let mut url = format!("{}://{login}{place}", self.scheme());
        if self.database != 0 {
            url.push_str(&format!("/{}", self.database));
        }
        let mut separator = '?';
        let mut add = |name, value: Option<String>| {
            if let Some(value) = value {
                url.extend([separator].into_iter().chain(format!("{name}={}", encode_value(&value)).chars()));
                separator = '&';
            }
        };
        add("protocol", (self.protocol == Protocol::Resp2).then(|| "resp2".to_owned()));
        let timeout = Some(self.timeout).filter(|timeout| *timeout != Self::DEFAULT_TIMEOUT);
        add("timeout", timeout.map(|timeout| format!("{}ms", timeout.as_millis())));
        add("rx_size", self.rx_size.map(|bytes| bytes.to_string()));
        add("device", self.device.clone());
        add("gid", self.gid.map(|index| index.to_string()));
        add("source", self.source.map(|address| address.to_string()));
        add("poll", (self.polling != Polling::default()).then(|| self.polling.to_string()));
        add("fallback", self.fallback.then(|| "tcp".to_owned()));
        add("rdma_port", (self.rdma_port != RdmaPort::Same).then(|| self.rdma_port.to_string()));
        if let Some(sentinels) = &self.sentinels {
            let (user, password) = sentinels.login();
            add("sentinel_user", user.map(str::to_owned));
            add("sentinel_password", password.map(str::to_owned));
        }
        url
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
                Ok(bytes) if Self::RX_SIZES.contains(&bytes) => self.rx_size = Some(bytes),
                _ => return Err(bad(ALLOWED_RX_SIZES)),
            },
            "device" if value.is_empty() => return Err(bad(ALLOWED_DEVICES)),
            "device" => self.device = Some(value.to_owned()),
            "gid" => self.gid = Some(value.parse().map_err(|_| bad("the index of a GID, such as 1"))?),
            "source" => {
                self.source = Some(value.parse().map_err(|_| bad("an IP address of this machine"))?);
            }
            "poll" if self.transport == Transport::Tcp => {
                return Err(EndpointError::NotOnTcp { option: "poll" });
            }
            "poll" => self.polling = value.parse().map_err(|_| bad("event, busy or adaptive"))?,
            "rdma_port" => self.rdma_port = value.parse().map_err(bad)?,
            "fallback" => match value {
                "tcp" => self.fallback = true,
                _ => return Err(bad("tcp")),
            },
            _ => return Err(EndpointError::UnknownOption { name: name.to_owned() }),
        }
        Ok(())
    }
}

const ALLOWED_DURATION: &str = "a number above 0 with ms, s or m, such as 500ms or 5s";

fn parse_duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    let millis = match unit {
        "ms" => number,
        "s" => number.checked_mul(1000)?,
        "m" => number.checked_mul(60_000)?,
        _ => return None,
    };
    Some(Duration::from_millis(millis))
}
