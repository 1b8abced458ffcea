//! [`ListenUrl`]: an address to listen on, as a URL.

use valkey_rdma_transport::{Config as TransportConfig, DeviceKind, address};

use crate::peer::Transport;

/// `rdma://host:port?rx_size=N&poll=MODE&device=NAME`, `emulated://...`, `valkey://host:port` or `redis://...`: what a client
/// connects to.
#[derive(Debug)]
pub(crate) struct ListenUrl {
    pub(crate) transport: Transport,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Unused over TCP.
    pub(crate) config: TransportConfig,
}

/// [`TransportConfig::URL_RX_SIZES`] in words.
const BAD_RX_SIZE: &str = "rx_size is not a number of bytes from 65536 to 16777216";

/// The port of a URL without one.
const DEFAULT_PORT: u16 = 6379;

impl ListenUrl {
    /// Parses a URL. The error says what is wrong, without quoting it.
    pub(crate) fn parse(url: &str) -> Result<Self, &'static str> {
        let (scheme, rest) =
            url.split_once("://").ok_or("expected rdma://host:port or valkey://host:port")?;
        let transport = match &scheme.to_ascii_lowercase()[..] {
            "rdma" => Transport::Rdma(DeviceKind::Verbs),
            "valkey" | "redis" => Transport::Tcp,
            #[cfg(feature = "emulated")]
            "emulated" => Transport::Rdma(DeviceKind::Emulated),
            #[cfg(not(feature = "emulated"))]
            "emulated" => {
                return Err("this program was built without the emulated device (cargo feature emulated)");
            }
            _ => return Err("unknown scheme: use rdma, emulated, valkey or redis"),
        };
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        let address = address.strip_suffix('/').unwrap_or(address);
        if address.contains('@') {
            return Err("a server has no login in its URL: use Builder::password");
        }
        if address.contains('/') {
            return Err("a server has no database in its URL");
        }
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| "the port is not a number from 0 to 65535")?)
            }
            _ => (address, DEFAULT_PORT),
        };
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bracketed.map_or(host.into(), address::from_url);
        if host.is_empty() {
            return Err("no host: 0.0.0.0 and [::] are all addresses of this machine");
        }
        let mut config = TransportConfig::default();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            if transport == Transport::Tcp {
                return Err("valkey:// has no options");
            }
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            config = match name {
                "rx_size" => {
                    let bytes =
                        value.parse().ok().filter(|bytes| TransportConfig::URL_RX_SIZES.contains(bytes));
                    config.rx_size(bytes.ok_or(BAD_RX_SIZE)?)
                }
                "poll" => config.polling(value.parse().map_err(|_| "poll is not event, busy or adaptive")?),
                "device" if value.is_empty() => return Err("device is not the name of an RDMA device"),
                "device" => config.device(value),
                _ => return Err("unknown option: use rx_size, poll or device"),
            };
        }
        Ok(Self { transport, host: host.into_owned(), port, config })
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
        ] {
            let parsed = ListenUrl::parse(url).expect(url);
            assert_eq!((parsed.transport, &parsed.host[..], parsed.port), (transport, host, port), "{url}");
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
            ("valkey://h?poll=busy", "has no options"),
        ] {
            let error = ListenUrl::parse(url).expect_err(url);
            assert!(error.contains(expected), "{url}: {error}");
        }
    }
}
