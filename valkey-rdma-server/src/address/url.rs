//! [`ListenUrl`]: a URL to listen on.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;

use valkey_rdma_transport::address::{self, AddressError};
use valkey_rdma_transport::tls::{ClientAuth, ServerTls};
use valkey_rdma_transport::{
    Config as TransportConfig, DeviceKind, TransportError, UrlOptions, percent_decode,
};

use crate::listener::BindError;
use crate::peer::Transport;

/// `rdma://host:port?rx_size=N&send_buffer=N&poll=MODE&device=NAME`, `emulated://...`, `valkey://host:port` or `redis://...`: what a client
/// connects to. With TLS, `rdmas://host:port?cert=FILE&key=FILE&client_ca=FILE&client_auth=no|optional|required` and so on.
#[derive(Debug)]
pub(super) struct ListenUrl {
    pub(super) transport: Transport,
    host: String,
    port: u16,
    /// Unused over TCP.
    pub(super) config: TransportConfig,
    /// Whether the scheme is one of TLS.
    pub(super) is_encrypted: bool,
    /// The certificates, if the URL names them.
    pub(super) tls: Option<ServerTls>,
}

/// Those of the [`UrlOptions`] that a listener can have.
const OF_DEVICES: [&str; 4] = ["rx_size", "send_buffer", "poll", "device"];

/// Those of TLS.
const OF_TLS: [&str; 4] = ["cert", "key", "client_ca", "client_auth"];

const BAD_ENCODING: &str = "the host or an option is not percent-encoded UTF-8: write '%' as %25";

const UNKNOWN: &str = "unknown option: use rx_size, send_buffer, poll or device";
const UNKNOWN_OVER_TCP: &str = "unknown option: use cert, key, client_ca or client_auth";
const UNKNOWN_WITH_TLS: &str =
    "unknown option: use rx_size, send_buffer, poll, device, cert, key, client_ca or client_auth";

/// The port of a URL without one.
const DEFAULT_PORT: u16 = 6379;

impl ListenUrl {
    /// Parses a URL. The error says what is wrong, without quoting it.
    pub(super) fn parse(url: &str) -> Result<Self, Cow<'static, str>> {
        let (scheme, rest) =
            url.split_once("://").ok_or("expected rdma://host:port or valkey://host:port")?;
        let scheme = scheme.to_ascii_lowercase();
        let is_encrypted = matches!(&scheme[..], "rdmas" | "emulateds" | "valkeys" | "rediss");
        let transport = match &scheme[..] {
            "rdma" | "rdmas" => Transport::Rdma(DeviceKind::Verbs),
            "valkey" | "valkeys" | "redis" | "rediss" => Transport::Tcp,
            #[cfg(feature = "emulated")]
            "emulated" | "emulateds" => Transport::Rdma(DeviceKind::Emulated),
            #[cfg(not(feature = "emulated"))]
            "emulated" | "emulateds" => {
                return Err(
                    "this program was built without the emulated device (cargo feature emulated)".into()
                );
            }
            _ => {
                return Err(
                    "unknown scheme: use rdma, emulated, valkey or redis, with an s at its end for TLS"
                        .into(),
                );
            }
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
        let (mut options, mut tls) = (UrlOptions::default(), TlsOptions::default());
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = percent_decode(value).ok_or(BAD_ENCODING)?;
            let is_of_tls = OF_TLS.contains(&name);
            if is_of_tls && !is_encrypted {
                return Err(format!("{name} is an option of TLS: use rdmas, emulateds or valkeys").into());
            }
            if is_of_tls {
                tls.set(name, value).map_err(|allowed| format!("{name} is not {allowed}"))?;
            } else if transport == Transport::Tcp {
                return Err(if is_encrypted { UNKNOWN_OVER_TCP } else { "valkey:// has no options" }.into());
            } else if OF_DEVICES.contains(&name) {
                options.set(name, &value).map_err(|allowed| format!("{name} is not {allowed}"))?;
            } else {
                return Err(if is_encrypted { UNKNOWN_WITH_TLS } else { UNKNOWN }.into());
            }
        }
        let config = options.apply_to(TransportConfig::default());
        Ok(Self { transport, host, port, config, is_encrypted, tls: tls.settings()? })
    }

    /// The first address of the host.
    pub(super) async fn resolve(&self) -> Result<SocketAddr, BindError> {
        let found = address::resolve(&self.host, self.port).await;
        let first = found.and_then(|found| found.first().copied().ok_or(io::ErrorKind::NotFound.into()));
        first.map_err(|source| match AddressError::within(&source) {
            Some(error) => BindError::Rdma(TransportError::Address(error.clone())),
            None => BindError::Resolve { host: self.host.clone(), source },
        })
    }
}

/// What a URL says about certificates.
#[derive(Default)]
struct TlsOptions {
    cert: Option<String>,
    key: Option<String>,
    client_ca: Option<String>,
    client_auth: Option<ClientAuth>,
}

impl TlsOptions {
    /// Sets one of [`OF_TLS`]. The error says what the value can be.
    fn set(&mut self, name: &str, value: String) -> Result<(), &'static str> {
        if name == "client_auth" {
            self.client_auth = Some(value.parse()?);
            return Ok(());
        }
        if value.is_empty() {
            return Err("the path of a file");
        }
        let file = match name {
            "cert" => &mut self.cert,
            "key" => &mut self.key,
            _ => &mut self.client_ca,
        };
        *file = Some(value);
        Ok(())
    }

    /// `None` if the URL says nothing.
    fn settings(self) -> Result<Option<ServerTls>, &'static str> {
        let mut tls = match (self.cert, self.key) {
            (Some(cert), Some(key)) => ServerTls::new(cert, key),
            (None, None) if self.client_ca.is_none() && self.client_auth.is_none() => return Ok(None),
            _ => return Err("a server with TLS needs both cert=FILE and key=FILE"),
        };
        if let Some(file) = self.client_ca {
            tls = tls.with_client_ca(file);
        }
        if let Some(auth) = self.client_auth {
            tls = tls.with_client_auth(auth);
        }
        Ok(Some(tls))
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
    fn encrypted_urls_name_their_certificates() {
        let pair = ServerTls::new("/etc/a b.crt", "k");
        let with_clients = pair.clone().with_client_ca("ca").with_client_auth(ClientAuth::Optional);
        for (url, transport, tls) in [
            ("valkeys://h?cert=/etc/a%20b.crt&key=k", Transport::Tcp, Some(pair)),
            (
                "rdmas://h?key=k&cert=/etc/a%20b.crt&client_ca=ca&client_auth=optional&poll=busy",
                Transport::Rdma(DeviceKind::Verbs),
                Some(with_clients),
            ),
            ("REDISS://h", Transport::Tcp, None),
        ] {
            let parsed = ListenUrl::parse(url).expect(url);
            assert_eq!((parsed.transport, parsed.is_encrypted, parsed.tls), (transport, true, tls), "{url}");
        }
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
            ("valkey://h?cert=c&key=k", "cert is an option of TLS: use rdmas, emulateds or valkeys"),
            ("rdma://h?client_auth=no", "client_auth is an option of TLS"),
            ("valkeys://h?cert=c", "needs both cert=FILE and key=FILE"),
            ("valkeys://h?key=k", "needs both cert=FILE and key=FILE"),
            ("valkeys://h?client_ca=c", "needs both cert=FILE and key=FILE"),
            ("valkeys://h?cert=&key=k", "cert is not the path of a file"),
            ("valkeys://h?cert=c&key=k&client_auth=yes", "client_auth is not no, optional or required"),
            ("valkeys://h?cert=c&key=%4", "%25"),
            ("valkeys://h?poll=busy", "unknown option: use cert, key"),
            ("rdmas://h?ca=c", "unknown option: use rx_size, send_buffer, poll, device, cert, key"),
            ("rdma://h?send_buffer=1", "send_buffer is not a number of bytes from 65536 to 16777216"),
            ("rdma://100%", "%25"),
            ("rdma://h%ff", "%25"),
            ("rdma://h?device=%4", "%25"),
        ] {
            let error = ListenUrl::parse(url).expect_err(url);
            assert!(error.contains(expected), "{url}: {error}");
        }
    }
}
