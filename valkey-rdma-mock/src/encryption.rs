//! What encrypts the servers of a test.

use std::path::PathBuf;

use valkey_rdma_server::{Address, ServerTls};

/// The certificate of all servers, if the environment asks for TLS: see [`MockServer`](crate::MockServer).
pub(crate) fn from_environment() -> Option<ServerTls> {
    let folder = PathBuf::from(std::env::var_os(FOLDER)?);
    Some(ServerTls::new(folder.join("server.crt"), folder.join("server.key")))
}

/// The address, encrypted if there is a certificate.
pub(crate) fn encrypted(address: Address, tls: Option<&ServerTls>) -> Address {
    match tls {
        Some(tls) => address.tls(tls.clone()),
        None => address,
    }
}

const FOLDER: &str = "VALKEY_RDMA_MOCK_TLS";
