//! A server on every transport that runs anywhere, and clients that speak in literal bytes. The mock's tests have it too.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use valkey_rdma_server::{DeviceKind, Handler, Limits, Listening, Server, Transport, TransportConfig};
use valkey_rdma_transport::Stream;

pub(crate) fn localhost() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// `handler` on TCP and on the emulated device, whose windows are small and odd so that values wrap often.
pub(crate) async fn start(handler: impl Handler, limits: &Limits) -> Server {
    let rdma = TransportConfig::default().rx_size(10_001);
    Server::builder(handler)
        .tcp(localhost())
        .rdma(DeviceKind::Emulated, localhost(), &rdma)
        .limits(limits.clone())
        .start()
        .await
        .unwrap()
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

trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// One client connection.
pub(crate) struct Wire {
    pub(crate) transport: Transport,
    stream: Box<dyn ByteStream>,
}

impl Wire {
    pub(crate) async fn connect(listening: &Listening) -> Self {
        let stream: Box<dyn ByteStream> = match listening.transport {
            Transport::Tcp => Box::new(TcpStream::connect(listening.addr).await.unwrap()),
            Transport::Rdma(device) => {
                Box::new(Stream::connect(device, listening.addr, &TransportConfig::default()).await.unwrap())
            }
            other => panic!("no client for {other}"),
        };
        Self { transport: listening.transport, stream }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        timeout(PATIENCE, self.stream.write_all(bytes.as_ref())).await.expect("the server reads").unwrap();
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
    pub(crate) async fn rest_or_reset(&mut self) {
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, self.stream.read_to_end(&mut rest)).await.expect("the server closes");
    }

    /// Reads nothing until the server cuts the connection, in good order or not.
    pub(crate) async fn expect_cut(&mut self) {
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, self.stream.read_to_end(&mut rest)).await.expect("the server closes");
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
