//! A server on every transport that runs anywhere, and clients that speak in literal bytes. The mock's tests have it too.
//!
//! All of it is encrypted while `VALKEY_RDMA_MOCK_TLS` names a folder with `server.crt` and `server.key`. `SSL_CERT_FILE` has their issuer.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use valkey_rdma_server::{
    Address, DeviceKind, Handler, Limits, Listening, Server, ServerTls, Transport, TransportConfig,
};
use valkey_rdma_transport::tls::{ClientTls, TlsConnector};
use valkey_rdma_transport::{AnyStream, FeatureSet, Stream};

pub(crate) fn localhost() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// `handler` on TCP and on the emulated device, whose windows are small and odd so that values wrap often.
pub(crate) async fn start(handler: impl Handler, limits: &Limits) -> Server {
    let rdma = TransportConfig::default().rx_size(10_001);
    Server::builder(handler)
        .listen(secured(Address::tcp(localhost())))
        .listen(secured(Address::rdma(DeviceKind::Emulated, localhost(), &rdma)))
        .limits(limits.clone())
        .start()
        .await
        .unwrap()
}

fn secured(address: Address) -> Address {
    let Some(folder) = std::env::var_os("VALKEY_RDMA_MOCK_TLS") else { return address };
    let file = |name: &str| Path::new(&folder).join(name);
    address.tls(ServerTls::new(file("server.crt"), file("server.key")))
}

/// A client of each address that the server listens on.
pub(crate) async fn wires(server: &Server) -> Vec<Wire> {
    let mut wires = Vec::new();
    for listening in server.listening() {
        wires.push(Wire::connect(&listening).await);
    }
    wires
}

/// Waits until `condition` holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let holds = async {
        while !condition().await {
            tokio::task::yield_now().await;
        }
    };
    within(what, holds).await;
}

/// Waits for `future`, but not for ever.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}

/// One client connection.
pub(crate) struct Wire {
    pub(crate) transport: Transport,
    stream: AnyStream,
}

impl Wire {
    pub(crate) async fn connect(listening: &Listening) -> Self {
        let mut stream = match listening.transport {
            Transport::Tcp => AnyStream::Tcp(TcpStream::connect(listening.addr).await.unwrap()),
            Transport::Rdma(device) => {
                let features = if listening.tls { FeatureSet::TLS } else { FeatureSet::NONE };
                let config = TransportConfig::default().requires(features);
                AnyStream::Device(Stream::connect(device, listening.addr, &config).await.unwrap())
            }
            other => panic!("no client for {other}"),
        };
        if listening.tls {
            let host = listening.addr.ip().to_string();
            stream = TlsConnector::new(ClientTls::default()).connect(&host, stream).await.unwrap();
        }
        Self { transport: listening.transport, stream }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = async {
            self.stream.write_all(bytes.as_ref()).await?;
            // Without this, TLS may keep the end of it.
            self.stream.flush().await
        };
        timeout(PATIENCE, sent).await.expect("the server reads").unwrap();
    }

    /// Reads exactly `expected`.
    pub(crate) async fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut received = Vec::new();
        let mut stream = (&mut self.stream).take(expected.len() as u64);
        let outcome = timeout(PATIENCE, stream.read_to_end(&mut received)).await;
        // Large values are not worth printing.
        let equal = received == expected;
        let (received, expected) = (shown(&received), shown(expected));
        assert!(equal, "{}: {received:?} instead of {expected:?} ({outcome:?})", self.transport);
    }

    /// Reads until the server closes.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        timeout(PATIENCE, self.stream.read_to_end(&mut rest)).await.expect("the server closes").unwrap();
        rest
    }

    /// Reads one line, without its end.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let byte = timeout(PATIENCE, self.stream.read_u8()).await.expect("the server answers").unwrap();
            line.push(byte);
        }
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    /// Reads until the server cuts the connection, in good order or not.
    pub(crate) async fn rest_or_reset(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, self.stream.read_to_end(&mut rest)).await.expect("the server closes");
        rest
    }

    /// Reads nothing until the server cuts the connection, in good order or not.
    pub(crate) async fn expect_cut(&mut self) {
        let rest = self.rest_or_reset().await;
        assert_eq!(shown(&rest), "", "{}", self.transport);
    }

    pub(crate) async fn expect_end(&mut self) {
        assert_eq!(shown(&self.rest().await), "", "{}", self.transport);
    }

    /// Sends and expects, line by line of a dialogue.
    pub(crate) async fn dialogue(&mut self, lines: &[(&str, &str)]) {
        for (command, reply) in lines {
            self.send(format!("{command}\r\n")).await;
            self.expect(reply).await;
        }
    }
}

fn shown(bytes: &[u8]) -> String {
    let text = bytes[..bytes.len().min(200)].escape_ascii().to_string();
    if bytes.len() > 200 { format!("{text}... ({} bytes)", bytes.len()) } else { text }
}

/// Long enough for a loaded machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(300);
