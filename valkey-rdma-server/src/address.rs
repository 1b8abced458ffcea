//! [`Address`]: where a server is asked to listen, as a URL or otherwise.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;

use valkey_rdma_transport::address::{self, AddressError};
use valkey_rdma_transport::{
    Config as TransportConfig, DeviceKind, TransportError, UrlOptions, percent_decode,
};

use crate::listener::{BindError, Listener};
use crate::peer::Transport;

/// An address to listen on.
pub(crate) enum Address {
    Url(String),
    /// Over TCP, the settings are unused.
    At(Transport, SocketAddr, Box<TransportConfig>),
    /// Somebody listens there already.
    Bound(Listener),
}

impl Address {
    pub(crate) fn tcp(addr: SocketAddr) -> Self {
        Self::At(Transport::Tcp, addr, Box::default())
    }

    pub(crate) fn rdma(device: DeviceKind, addr: SocketAddr, config: &TransportConfig) -> Self {
        Self::At(Transport::Rdma(device), addr, Box::new(config.clone()))
    }

    /// Listens there.
    pub(crate) async fn bind(self) -> Result<Listener, BindError> {
        match self {
            Self::Bound(listener) => Ok(listener),
            Self::At(transport, addr, config) => Listener::bind(transport, addr, &config).await,
            Self::Url(url) => {
                let url = match ListenUrl::parse(&url) {
                    Ok(parsed) => parsed,
                    Err(reason) => {
                        // What stands before the host may be a password.
                        let url = url.rsplit('@').next().unwrap_or_default().to_owned();
                        return Err(BindError::Url { url, reason });
                    }
                };
                let addr = url.resolve().await?;
                Listener::bind(url.transport, addr, &url.config).await
            }
        }
    }
}

/// `rdma://host:port?rx_size=N&poll=MODE&device=NAME`, `emulated://...`, `valkey://host:port` or `redis://...`: what a client
/// connects to.
#[derive(Debug)]
struct ListenUrl {
    transport: Transport,
    host: String,
    port: u16,
    /// Unused over TCP.
    config: TransportConfig,
}

/// Those of the [`UrlOptions`] that a listener can have.
const OPTIONS: [&str; 3] = ["rx_size", "poll", "device"];

const BAD_ENCODING: &str = "the host or an option is not percent-encoded UTF-8: write '%' as %25";

/// The port of a URL without one.
const DEFAULT_PORT: u16 = 6379;

impl ListenUrl {
    /// Parses a URL. The error says what is wrong, without quoting it.
    fn parse(url: &str) -> Result<Self, Cow<'static, str>> {
        let (scheme, rest) =
            url.split_once("://").ok_or("expected rdma://host:port or valkey://host:port")?;
        let transport = match &scheme.to_ascii_lowercase()[..] {
            "rdma" => Transport::Rdma(DeviceKind::Verbs),
            "valkey" | "redis" => Transport::Tcp,
            #[cfg(feature = "emulated")]
            "emulated" => Transport::Rdma(DeviceKind::Emulated),
            #[cfg(not(feature = "emulated"))]
            "emulated" => {
                return Err(
                    "this program was built without the emulated device (cargo feature emulated)".into()
                );
            }
            _ => return Err("unknown scheme: use rdma, emulated, valkey or redis".into()),
        };
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        let address = address.strip_suffix('/').unwrap_or(address);
        if address.contains('@') {
            return Err("a server has no login in its URL: use Builder::password".into());
        }
        if address.contains('/') {
            return Err("a server has no database in its URL".into());
        }
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| "the port is not a number from 0 to 65535")?)
            }
            _ => (address, DEFAULT_PORT),
        };
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(ip) => address::from_url(ip).into_owned(),
            None => percent_decode(host).ok_or(BAD_ENCODING)?,
        };
        if host.is_empty() {
            return Err("no host: 0.0.0.0 and [::] are all addresses of this machine".into());
        }
        let mut options = UrlOptions::default();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            if transport == Transport::Tcp {
                return Err("valkey:// has no options".into());
            }
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = percent_decode(value).ok_or(BAD_ENCODING)?;
            if !OPTIONS.contains(&name) {
                return Err("unknown option: use rx_size, poll or device".into());
            }
            options.set(name, &value).map_err(|allowed| format!("{name} is not {allowed}"))?;
        }
        let config = options.apply_to(TransportConfig::default());
        Ok(Self { transport, host, port, config })
    }

    /// The first address of the host.
    async fn resolve(&self) -> Result<SocketAddr, BindError> {
        let found = address::resolve(&self.host, self.port).await;
        let first = found.and_then(|found| found.first().copied().ok_or(io::ErrorKind::NotFound.into()));
        first.map_err(|source| match AddressError::within(&source) {
            Some(error) => BindError::Rdma(TransportError::Address(error.clone())),
            None => BindError::Resolve { host: self.host.clone(), source },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_those_of_clients() {
        for (url, transport, host, port) in [
            ("rdma://0.0.0.0:7000", Transport::Rdma(DeviceKind::Verbs), "0.0.0.0", 7000),
            (
                "RDMA://[::]?rx_size=65536&poll=busy&device=rxe0",
                Transport::Rdma(DeviceKind::Verbs),
                "::",
                6379,
            ),
            ("valkey://localhost:0/", Transport::Tcp, "localhost", 0),
            ("redis://[::1]:6380", Transport::Tcp, "::1", 6380),
            ("valkey://[fe80::1%25eth0]:6380", Transport::Tcp, "fe80::1%eth0", 6380),
            ("valkey://[fe80::1%eth0]", Transport::Tcp, "fe80::1%eth0", 6379),
            ("valkey://my%20host%C3%A9:7", Transport::Tcp, "my hosté", 7),
            ("valkey://%3A%3A1:7", Transport::Tcp, "::1", 7),
            ("rdma://h?device=unix%3A%2Ftmp", Transport::Rdma(DeviceKind::Verbs), "h", 6379),
        ] {
            let parsed = ListenUrl::parse(url).expect(url);
            assert_eq!((parsed.transport, &parsed.host[..], parsed.port), (transport, host, port), "{url}");
        }
        let parsed = ListenUrl::parse("rdma://h?device=unix%3A%2Ftmp").expect("a good URL");
        assert_eq!(parsed.config.device_options().device.as_deref(), Some("unix:/tmp"));
    }

    #[test]
    fn bad_urls_are_refused_with_what_is_allowed() {
        for (url, expected) in [
            ("localhost:6379", "expected rdma://"),
            ("http://h", "unknown scheme"),
            ("valkey://:pw@h", "Builder::password"),
            ("rdma://h/1", "no database"),
            ("rdma://:6379", "no host"),
            ("rdma://h:x", "the port"),
            ("rdma://h?rx_size=many", "rx_size is not a number of bytes from 65536 to 16777216"),
            ("rdma://h?rx_size=0", "from 65536 to 16777216"),
            ("rdma://h?rx_size=1", "from 65536 to 16777216"),
            ("rdma://h?rx_size=65535", "from 65536 to 16777216"),
            ("rdma://h?rx_size=16777217", "from 65536 to 16777216"),
            ("rdma://h?rx_size=1073741824", "from 65536 to 16777216"),
            ("rdma://h?rx_size=", "from 65536 to 16777216"),
            ("rdma://h?device=", "device is not the name of an RDMA device"),
            ("rdma://h?device", "device is not the name of an RDMA device"),
            ("rdma://h?poll=often", "poll"),
            ("rdma://h?timeout=1s", "unknown option"),
            ("rdma://h?gid=1", "unknown option"),
            ("valkey://h?poll=busy", "has no options"),
            ("rdma://100%", "%25"),
            ("rdma://h%ff", "%25"),
            ("rdma://h?device=%4", "%25"),
        ] {
            let error = ListenUrl::parse(url).expect_err(url);
            assert!(error.contains(expected), "{url}: {error}");
        }
    }
}
