//! [`Endpoint`] from the text of a URL, and as a URL.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};
use url::{Host, Url};
use valkey_rdma_transport::address;
use valkey_rdma_transport::tls::ClientTls;

use super::{Endpoint, EndpointError, Login, Sentinels, Transport};

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        // A text with a user and a password before `://` is none either: no error may quote these as its scheme.
        let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
            return Err(EndpointError::NotAUrl);
        };
        let (scheme, servers) = Servers::named_by(scheme);
        let (transport, tls) = match scheme.to_ascii_lowercase().as_str() {
            "rdma" => (Transport::Rdma, None),
            "rdmas" => (Transport::Rdma, Some(ClientTls::default())),
            "emulated" => (Transport::Emulated, None),
            "emulateds" => (Transport::Emulated, Some(ClientTls::default())),
            "valkey" | "redis" => (Transport::Tcp, None),
            "valkeys" | "rediss" => (Transport::Tcp, Some(ClientTls::default())),
            "unix" | "redis+unix" | "valkey+unix" => (Transport::Unix, None),
            "unixs" => return Err(EndpointError::NotOnUnix { what: "TLS" }),
            _ => return Err(EndpointError::UnknownScheme { scheme: scheme.to_owned() }),
        };
        if rest.ends_with("#insecure") {
            return Err(EndpointError::Insecure);
        }
        if rest.contains('#') {
            return Err(EndpointError::Fragment);
        }
        check_separators(rest)?;
        let start = |host: String, port| {
            let mut endpoint = Endpoint::new(transport, host, port);
            endpoint.tls = tls.map(Box::new);
            endpoint
        };
        match servers {
            Servers::BehindSentinels if transport == Transport::Unix => {
                Err(EndpointError::NotOnUnix { what: "Sentinel" })
            }
            Servers::OfCluster if transport == Transport::Unix => {
                Err(EndpointError::NotOnUnix { what: "a cluster" })
            }
            Servers::One if transport == Transport::Unix => parse_socket(start, rest),
            Servers::One => parse_one(start, rest),
            Servers::BehindSentinels => parse_behind_sentinels(start, rest),
            Servers::OfCluster => parse_cluster(start, rest),
        }
    }
}

/// Which servers a URL names, by what is behind the `+` of its scheme.
enum Servers {
    One,
    /// `+sentinel`.
    BehindSentinels,
    /// `+cluster`.
    OfCluster,
}

impl Servers {
    /// The scheme without its end, and what that says. Upper and lower case are the same.
    fn named_by(scheme: &str) -> (&str, Self) {
        match scheme.rsplit_once('+') {
            Some((plain, kind)) if kind.eq_ignore_ascii_case("sentinel") => (plain, Self::BehindSentinels),
            Some((plain, kind)) if kind.eq_ignore_ascii_case("cluster") => (plain, Self::OfCluster),
            _ => (scheme, Self::One),
        }
    }
}

/// The endpoint of one server. `start` makes it, by the scheme; `rest` is what follows `://`.
fn parse_one(start: impl FnOnce(String, u16) -> Endpoint, rest: &str) -> Result<Endpoint, EndpointError> {
    let (login, hosts, _) = parts(rest);
    if hosts.contains(',') {
        return Err(EndpointError::SeveralHosts);
    }
    let (rest, zone) = without_zone(rest);
    let url = syntax(&rest)?;
    let mut endpoint = start(host(&url, &zone)?, port(&url, Endpoint::DEFAULT_PORT)?);
    endpoint.read_settings(login, &url)?;
    endpoint.check()?;
    Ok(endpoint)
}

/// The endpoint of a server at a Unix socket. Its path is where that of other URLs has the database.
fn parse_socket(start: impl FnOnce(String, u16) -> Endpoint, rest: &str) -> Result<Endpoint, EndpointError> {
    let (login, hosts, tail) = parts(rest);
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    if !hosts.is_empty() {
        return Err(EndpointError::BadSocketPath);
    }
    let mut endpoint = start(percent_decode(path)?, Endpoint::DEFAULT_PORT);
    let at = if login.is_empty() { "" } else { "@" };
    endpoint.read_settings(login, &syntax(&format!("{login}{at}socket?{query}"))?)?;
    endpoint.check()?;
    Ok(endpoint)
}

/// The endpoint of the primary of a service, whose address Sentinels report.
fn parse_behind_sentinels(
    start: impl FnOnce(String, u16) -> Endpoint,
    rest: &str,
) -> Result<Endpoint, EndpointError> {
    let (login, hosts, tail) = parts(rest);
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let path = path.strip_prefix('/').unwrap_or(path);
    let (service, database) = path.split_once('/').unwrap_or((path, ""));
    let service = percent_decode(service)?;
    if service.is_empty() {
        return Err(EndpointError::MissingService);
    }
    let sentinels = Sentinels::new(service, addresses(hosts, Sentinels::DEFAULT_PORT)?);
    let mut endpoint = start(String::new(), Endpoint::DEFAULT_PORT).with_sentinels(sentinels);
    let at = if login.is_empty() { "" } else { "@" };
    // The login, database and options stand as in the URL of one server.
    endpoint.read_settings(login, &syntax(&format!("{login}{at}primary/{database}?{query}"))?)?;
    if let Some(sentinels) = &mut endpoint.sentinels {
        sentinels.login = std::mem::take(&mut sentinels.login).settled()?;
    }
    endpoint.check()?;
    Ok(endpoint)
}

/// The endpoint of a cluster, of which the URL names some nodes.
fn parse_cluster(start: impl FnOnce(String, u16) -> Endpoint, rest: &str) -> Result<Endpoint, EndpointError> {
    let (login, hosts, tail) = parts(rest);
    let mut nodes = addresses(hosts, Endpoint::DEFAULT_PORT)?.into_iter();
    let (host, port) = nodes.next().ok_or(EndpointError::MissingHost)?;
    let mut endpoint = start(host, port).with_cluster(nodes);
    let at = if login.is_empty() { "" } else { "@" };
    endpoint.read_settings(login, &syntax(&format!("{login}{at}node{tail}"))?)?;
    endpoint.check()?;
    Ok(endpoint)
}

/// The addresses of a list, with commas between them.
fn addresses(hosts: &str, default_port: u16) -> Result<Vec<(String, u16)>, EndpointError> {
    let address = |text| {
        let (text, zone) = without_zone(text);
        let url = syntax(&text)?;
        Ok((host(&url, &zone)?, port(&url, default_port)?))
    };
    hosts.split(',').map(address).collect()
}

/// Login, hosts, and what follows them from the first `/` or `?` on.
fn parts(rest: &str) -> (&str, &str, &str) {
    let (place, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (login, hosts) = place.rsplit_once('@').unwrap_or(("", place));
    (login, hosts, tail)
}

/// What follows `://`, by the syntax of URLs.
fn syntax(rest: &str) -> Result<Url, EndpointError> {
    Url::parse(&format!("valkey://{rest}"))
        .map_err(|error| EndpointError::Syntax { reason: error.to_string() })
}

fn host(url: &Url, zone: &str) -> Result<String, EndpointError> {
    match url.host() {
        Some(Host::Domain(name)) if !name.is_empty() => percent_decode(name),
        Some(Host::Ipv4(address)) => Ok(address.to_string()),
        Some(Host::Ipv6(address)) => Ok(format!("{address}{zone}")),
        _ => Err(EndpointError::MissingHost),
    }
}

fn port(url: &Url, default: u16) -> Result<u16, EndpointError> {
    match url.port() {
        Some(0) => Err(EndpointError::PortZero),
        other => Ok(other.unwrap_or(default)),
    }
}

impl Endpoint {
    /// Sets login, database and options. `login` is that of the text: an empty password is none to the URL.
    fn read_settings(&mut self, login: &str, url: &Url) -> Result<(), EndpointError> {
        self.login = match (url.username(), login.contains(':')) {
            ("", false) => Login::default(),
            // Its password may be in a file, which an option names.
            (user, false) => Login { user: Some(percent_decode(user)?), ..Login::default() },
            (user, true) => Login::new(percent_decode(user)?, percent_decode(url.password().unwrap_or(""))?),
        };
        self.database = match url.path() {
            "" | "/" => 0,
            path => path
                .strip_prefix('/')
                .and_then(|number| number.parse().ok())
                .ok_or(EndpointError::BadDatabase)?,
        };
        let options = url.query().unwrap_or_default().split('&').filter(|option| !option.is_empty());
        // Before one is quoted: it may be the rest of a password behind a bare `?`, in a URL without a host.
        if options.clone().any(|option| !option.contains('=')) {
            return Err(EndpointError::OptionWithoutValue);
        }
        let mut seen: Vec<String> = Vec::new();
        for (name, value) in options.filter_map(|option| option.split_once('=')) {
            let (name, value) = (percent_decode(name)?, percent_decode(value)?);
            if seen.contains(&name) {
                return Err(EndpointError::RepeatedOption { name });
            }
            self.set_option(&name, &value)?;
            seen.push(name);
        }
        self.login = std::mem::take(&mut self.login).settled()?;
        Ok(())
    }

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
        let user = percent_encode(self.user().unwrap_or(""));
        let login = match self.password() {
            Some(password) => format!("{user}:{}@", percent_encode(password)),
            None if user.is_empty() => user,
            None => format!("{user}@"),
        };
        let place = match &self.sentinels {
            Some(sentinels) => {
                let addresses = authorities_in_url(&sentinels.addresses);
                format!("{}/{}", addresses.join(","), percent_encode(sentinels.service()))
            }
            None if self.transport == Transport::Unix => encode_value(&self.host),
            None => {
                let mut nodes = vec![authority_in_url(&self.host, self.port)];
                nodes.extend(self.other_seeds.iter().flat_map(|others| authorities_in_url(others)));
                nodes.join(",")
            }
        };
        let mut url = format!("{}://{login}{place}", self.scheme());
        if self.database != 0 && self.transport != Transport::Unix {
            url.push_str(&format!("/{}", self.database));
        }
        let mut separator = '?';
        for (name, value) in self.options() {
            url.push_str(&format!("{separator}{name}={}", encode_value(&value)));
            separator = '&';
        }
        url
    }

    fn scheme(&self) -> String {
        let transport = match self.transport {
            Transport::Rdma => "rdma",
            Transport::Emulated => "emulated",
            Transport::Tcp => "valkey",
            Transport::Unix => "unix",
        };
        let encrypted = if self.tls.is_some() { "s" } else { "" };
        let servers = match (&self.sentinels, &self.other_seeds) {
            (Some(_), _) => "+sentinel",
            (None, Some(_)) => "+cluster",
            (None, None) => "",
        };
        format!("{transport}{encrypted}{servers}")
    }
}

/// As a URL without options, and with `***` for a password, also for one that is in a file. [`Endpoint::to_url`] has everything.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme())?;
        if self.has_login() {
            write!(f, "{}:***@", self.user().unwrap_or(""))?;
        }
        match &self.sentinels {
            Some(sentinels) => write!(f, "{sentinels}/{}", sentinels.service())?,
            None if self.transport == Transport::Unix => f.write_str(&encode_value(&self.host))?,
            None => write!(f, "{}", self.authority())?,
        }
        for (host, port) in self.other_seeds.iter().flatten() {
            write!(f, ",{}", authority(host, *port))?;
        }
        match (self.database, self.transport) {
            (0, _) => Ok(()),
            (database, Transport::Unix) => write!(f, "?db={database}"),
            (database, _) => write!(f, "/{database}"),
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

/// What follows `://` without the zone of its IPv6 address, which the syntax of URLs does not have; and that zone behind a `%`.
fn without_zone(rest: &str) -> (Cow<'_, str>, String) {
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    // A password may have brackets.
    let start = rest[..end].rfind('@').map_or(0, |at| at + 1);
    let cut = || {
        let (ip, _) = rest[start..end].strip_prefix('[')?.split_once('%')?;
        let open = start + 1;
        let close = open + rest[open..end].rfind(']')?;
        let host = address::from_url(rest.get(open..close)?).into_owned();
        let (_, zone) = host.split_once('%')?;
        Some((format!("{}{ip}{}", &rest[..open], &rest[close..]), format!("%{zone}")))
    };
    cut().map_or((rest.into(), String::new()), |(rest, zone)| (rest.into(), zone))
}

/// `host:port`, with brackets around an IPv6 address.
pub(crate) fn authority(host: &str, port: u16) -> String {
    let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
    format!("{open}{host}{close}:{port}")
}

/// As [`authority`], in a URL: a name may have any characters.
fn authority_in_url(host: &str, port: u16) -> String {
    match ipv6(host) {
        Some(_) => format!("{}:{port}", address::to_url(host)),
        None => format!("{}:{port}", percent_encode(host)),
    }
}

fn authorities_in_url(addresses: &[(String, u16)]) -> Vec<String> {
    addresses.iter().map(|(host, port)| authority_in_url(host, *port)).collect()
}

/// The form of a host that its URL has too: an IPv6 address without brackets, in its shortest form. Names are unchanged.
pub(super) fn canonical(host: String) -> String {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
    match ipv6(bare) {
        Some((address, "")) => address.to_string(),
        Some((address, zone)) => format!("{address}%{zone}"),
        None => host,
    }
}

/// An IPv6 address and its zone, which may be empty.
fn ipv6(host: &str) -> Option<(Ipv6Addr, &str)> {
    let (address, zone) = host.split_once('%').unwrap_or((host, ""));
    Some((address.parse().ok()?, zone))
}

/// Encodes all but letters, digits and the marks that need no encoding in a URL.
fn percent_encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, RESERVED).to_string()
}

const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// As [`percent_encode`], for a value of the query: paths and addresses stay readable.
fn encode_value(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, RESERVED_IN_VALUES).to_string()
}

const RESERVED_IN_VALUES: &AsciiSet = &RESERVED.remove(b':').remove(b'/');

/// Decodes `%XX`. A `+` is a plus sign: only HTML forms write blanks so.
fn percent_decode(text: &str) -> Result<String, EndpointError> {
    valkey_rdma_transport::percent_decode(text).ok_or(EndpointError::BadEncoding)
}
