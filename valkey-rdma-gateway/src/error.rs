//! [`GatewayError`]: why a gateway does not start or reload.

use std::io;
use std::path::PathBuf;

use valkey_rdma_transport::TransportError;

/// Why a gateway does not start, or does not take a new configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// An address to listen on has another form.
    #[error("cannot listen on \"{text}\": use unix:PATH, tcp:ADDR:PORT or rdma:ADDR:PORT")]
    BadListen {
        /// The address as given.
        text: String,
    },
    /// The operating system refused an address.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The RDMA device refused an address, or there is no such device.
    #[error(transparent)]
    Device(#[from] TransportError),
    /// The URL of a server is invalid.
    #[error("server \"{url}\": {source}")]
    Server {
        /// The URL, without its login.
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
    /// The configuration is not valid.
    #[error("configuration: {0}")]
    Config(String),
}

/// A URL as errors show it. What stands before the host may be a password.
pub(crate) fn without_login(url: &str) -> &str {
    url.rsplit('@').next().unwrap_or_default()
}
