//! The server that a test runs against.
//!
//! `VALKEY_RDMA_TEST_SERVER` names a real one, over RDMA or TCP, that answers TCP on the same host and port too, as
//! Valkey does; tests may leave keys of their own in it. Without it, each test has a mock to itself, on the emulated
//! device and on TCP: with TLS, if the environment says so (see the README).

use std::sync::atomic::{AtomicU64, Ordering};

use valkey_rdma_client::{Client, Config, Endpoint};
use valkey_rdma_mock::MockServer;

/// Where it is, over RDMA (or the emulated device) and over TCP. Dropping it stops a mock.
pub(crate) struct Target {
    pub url: String,
    pub tcp: String,
    mock: Option<MockServer>,
    prefix: String,
}

pub(crate) async fn target() -> Target {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let test = std::thread::current();
    assert!(!test.name().unwrap_or_default().contains("mocks_only::"), "the mark of this test is wrong");
    let prefix = format!("test:{}:{count}:", std::process::id());
    if let Ok(url) = std::env::var("VALKEY_RDMA_TEST_SERVER") {
        let endpoint: Endpoint = url.parse().expect("VALKEY_RDMA_TEST_SERVER is a URL");
        let scheme = if endpoint.tls().is_some() { "valkeys" } else { "valkey" };
        let tcp = format!("{scheme}://{}:{}", endpoint.host(), endpoint.port());
        return Target { url, tcp, mock: None, prefix };
    }
    let mock = MockServer::start().await;
    Target { url: mock.url().to_owned(), tcp: mock.tcp_url().to_owned(), mock: Some(mock), prefix }
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
