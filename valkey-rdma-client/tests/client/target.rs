//! The server that a test runs against.
//!
//! `VALKEY_RDMA_TEST_SERVER` names a real one, over RDMA or TCP, that answers TCP on the same host and port too, as
//! Valkey does; tests may leave keys of their own in it. Without it, each test has a mock to itself, on the emulated
//! device and on TCP.

use std::sync::atomic::{AtomicU64, Ordering};

use valkey_rdma_client::{Client, Config, Endpoint};
use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};

/// Where it is, over RDMA (or the emulated device) and over TCP. Dropping it stops a mock.
pub(crate) struct Target {
    pub url: String,
    pub tcp: String,
    mock: Option<Server>,
    prefix: String,
}

pub(crate) async fn target() -> Target {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let prefix = format!("test:{}:{count}:", std::process::id());
    if let Ok(url) = std::env::var("VALKEY_RDMA_TEST_SERVER") {
        let endpoint: Endpoint = url.parse().expect("VALKEY_RDMA_TEST_SERVER is a URL");
        let tcp = format!("valkey://{}:{}", endpoint.host(), endpoint.port());
        return Target { url, tcp, mock: None, prefix };
    }
    let any = "127.0.0.1:0".parse().expect("an address");
    let server = Server::builder(Mock::new())
        .rdma(DeviceKind::Emulated, any, &TransportConfig::default())
        .tcp(any)
        .start()
        .await
        .expect("free ports");
    let urls: Vec<_> = server.urls().collect();
    let find = |scheme: &str| urls.iter().find(|url| url.starts_with(scheme)).expect("as built").clone();
    Target { url: find("emulated"), tcp: find("valkey"), mock: Some(server), prefix }
}

impl Target {
    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.url.as_str()).await.expect("connected")
    }

    pub(crate) async fn client_with(&self, config: &Config) -> Client {
        Client::connect_with(self.url.as_str(), config).await.expect("connected")
    }

    /// A key that no other test uses.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(crate) fn is_mock(&self) -> bool {
        self.mock.is_some()
    }
}
