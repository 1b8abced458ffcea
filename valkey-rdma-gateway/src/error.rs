//! [`GatewayError`]: why a gateway does not start or reload.

use std::io;
use std::path::PathBuf;

use valkey_rdma_client::Endpoint;
use valkey_rdma_program::{error_chain, shown};
use valkey_rdma_transport::TransportError;
use valkey_rdma_transport::address::{AddressError, listen_advice};
use valkey_rdma_transport::tls::TlsError;

/// Why a gateway does not start, or does not take a new configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// An address to listen on has another form.
    #[error(
        "cannot listen on \"{text}\": use unix:PATH, tcp:ADDR:PORT, rdma:ADDR:PORT, or with TLS tls:ADDR:PORT or rdmas:ADDR:PORT"
    )]
    BadListen {
        /// The address. Of one that may be a URL, only what may be [shown].
        text: String,
    },
    /// An address to listen on names no interface of this machine, or one that it cannot have.
    #[error("cannot listen on \"{text}\": {source}")]
    Address {
        /// As for [`BadListen`](Self::BadListen).
        text: String,
        /// What is wrong with it.
        source: AddressError,
    },
    /// The operating system refused an address.
    #[error("cannot listen on {address}{}: {source}", advice(.address, .source))]
    Bind {
        /// The address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The RDMA device refused an address, or there is no such device.
    #[error("{}", error_chain(.0))]
    Device(#[from] TransportError),
    /// The URL of a server is invalid.
    #[error("server \"{url}\": {source}")]
    Server {
        /// The URL without its password and its options. Of an invalid one, the scheme. With its number, if there are several.
        url: String,
        /// What is wrong with it.
        source: valkey_rdma_client::Error,
    },
    /// The configuration file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file with a password cannot be read, or holds none.
    #[error("password_file {path:?}: {source}")]
    Password {
        /// The file.
        path: PathBuf,
        /// The system's error, or what is wrong with its text.
        source: io::Error,
    },
    /// A file with certificates or a key cannot be used.
    #[error("tls: {}", error_chain(.0))]
    Tls(#[from] TlsError),
    /// The configuration is not valid.
    #[error("configuration: {0}")]
    Config(String),
    /// One route of several is not valid.
    #[error("route {number}: {source}")]
    Route {
        /// The first is 1.
        number: usize,
        /// What is wrong with it.
        source: Box<GatewayError>,
    },
}

/// What to do about a refused address.
fn advice(address: &str, source: &io::Error) -> String {
    let kinds = ["tcp:", "tls:"];
    let socket = kinds.iter().find_map(|kind| address.strip_prefix(kind)).unwrap_or(address);
    socket.parse().map_or_else(|_| String::new(), |socket| listen_advice(socket, source).to_string())
}

/// A URL as errors and debug output show it: as its endpoint, or of an invalid one its scheme.
pub(crate) fn shown_url(url: &str) -> String {
    url.parse::<Endpoint>().map_or_else(|_| shown(url).into_owned(), |endpoint| endpoint.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use valkey_rdma_transport::DeviceKind;

    /// Before, an address of an RDMA device was refused without a reason.
    #[test]
    fn a_refused_address_comes_with_the_reason_and_what_to_do() {
        let addr = ([10, 0, 0, 77], 1).into();
        let refused = |kind: io::ErrorKind| TransportError::Listen {
            addr,
            device: DeviceKind::Verbs,
            source: kind.into(),
        };
        for (error, expected) in [
            (
                GatewayError::Device(refused(io::ErrorKind::AddrInUse)),
                ["stop the program that listens there", "address in use"],
            ),
            (
                GatewayError::Device(refused(io::ErrorKind::AddrNotAvailable)),
                ["`ip address`", "address not available"],
            ),
            (
                GatewayError::Bind {
                    address: "tcp:10.0.0.77:1".to_owned(),
                    source: io::ErrorKind::AddrInUse.into(),
                },
                ["stop the program that listens there", "address in use"],
            ),
        ] {
            let text = error.to_string();
            for part in expected {
                assert!(text.contains(part), "{text}");
            }
        }
    }

    #[test]
    fn no_part_of_a_password_is_left_in_a_url() {
        for (url, shown) in [
            ("valkey://h:1/2", "valkey://h:1/2"),
            ("valkey://u:hush@h:1?timeout=5s", "valkey://u:***@h:1"),
            ("valkey://u:hush", "valkey://***"),
            ("valkey://u:hush@", "valkey://***"),
            ("valkey://u:hu?sh@h", "valkey://***"),
            ("rdma+sentinel://h1,h2/m?sentinel_password=hush&bogus=1", "rdma+sentinel://***"),
            ("rdma+sentinel://u:hush@h1/m?sentinel_password=hush", "rdma+sentinel://u:***@h1:26379/m"),
        ] {
            assert_eq!(shown_url(url), shown, "{url}");
        }
    }
}
