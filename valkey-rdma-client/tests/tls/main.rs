//! The client over TLS, on TCP and on the emulated device: what it verifies, what it says when it fails, and that it sends nothing plain.
#![cfg(all(feature = "tls", feature = "emulated"))]

mod certificates;
mod connections;
mod direct;
mod handshakes;
mod plain_ports;
mod streams;

use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;
use valkey_rdma_client::{Client, ConnectCause, Error, TlsError};
use valkey_rdma_mock::{Mock, MockServer, ServerTls};
use valkey_rdma_testkit::{Authority, Pair};

/// Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(300);

/// A mock on both transports with a certificate for this machine, and the issuer of that.
struct Encrypted {
    issuer: Authority,
    mock: MockServer,
}

impl Encrypted {
    async fn start() -> Self {
        Self::start_with(Mock::new(), |issuer| server_tls(&issuer.issue(&["127.0.0.1"]))).await
    }

    async fn start_with(mock: Mock, tls: impl FnOnce(&Authority) -> ServerTls) -> Self {
        let issuer = Authority::new("Issuer of tests");
        let mock = MockServer::start_encrypted(mock, tls(&issuer)).await.expect("free ports");
        Self { issuer, mock }
    }

    /// The URLs on both transports, with the issuer and further options.
    fn urls(&self, options: &str) -> [String; 2] {
        [self.mock.tcp_url(), self.mock.url()].map(|url| url_of(url, &self.issuer.ca(), options))
    }
}

fn server_tls(pair: &Pair) -> ServerTls {
    ServerTls::new(&pair.cert, &pair.key)
}

fn url_of(url: &str, ca: &Path, options: &str) -> String {
    format!("{url}?ca={}&timeout={}s{options}", ca.display(), PATIENCE.as_secs())
}

async fn connect(url: &str) -> Result<Client, Error> {
    timeout(PATIENCE, Client::connect(url)).await.expect("no hang")
}

/// Why TLS failed, and the whole text.
async fn refusal(url: &str) -> (TlsError, String) {
    match connect(url).await.expect_err("refused") {
        Error::Connect(error) => match error.cause() {
            ConnectCause::Tls(cause) => (TlsError::clone(cause), format!("{error:#}")),
            _ => panic!("{url}: {error:#}"),
        },
        other => panic!("{url}: {other:#}"),
    }
}
