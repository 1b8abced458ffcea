//! Mocks with TLS: one server, and a cluster.
#![cfg(feature = "tls")]

mod support;

use std::fs;
use std::process::Command;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use valkey_rdma_mock::{DeviceKind, Mock, MockCluster, MockServer, ServerTls, TransportConfig, Transports};
use valkey_rdma_testkit::{Authority, Child, Signal};
use valkey_rdma_transport::tls::{ClientTls, TlsConnector, TlsError};
use valkey_rdma_transport::{AnyStream, FeatureSet, Stream};

struct Issuer(Authority);

impl Issuer {
    fn new() -> Self {
        Self(Authority::new("Issuer of mocks"))
    }

    /// A certificate for this machine.
    fn certificate(&self) -> ServerTls {
        let pair = self.0.issue(&["127.0.0.1"]);
        ServerTls::new(pair.cert, pair.key)
    }

    async fn connect(&self, url: &str) -> Result<AnyStream, TlsError> {
        let (scheme, address) = url.split_once("://").expect("a URL");
        let addr = address.parse().expect("an address");
        let stream = if scheme == "valkeys" {
            AnyStream::Tcp(TcpStream::connect(addr).await.expect("connected"))
        } else {
            assert_eq!(scheme, "emulateds");
            let config = TransportConfig::default().requires(FeatureSet::TLS);
            AnyStream::Device(Stream::connect(DeviceKind::Emulated, addr, &config).await.expect("connected"))
        };
        TlsConnector::new(ClientTls::default().with_ca(self.0.ca())).connect("127.0.0.1", stream).await
    }

    /// What `command` is answered with on a new connection, until it is closed.
    async fn ask(&self, url: &str, command: &str) -> String {
        let mut client = self.connect(url).await.expect("encrypted");
        client.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).await.expect("sent");
        let mut reply = String::new();
        let read = timeout(PATIENCE, client.read_to_string(&mut reply)).await;
        read.expect("it closes").expect("in good order");
        reply
    }
}

#[tokio::test]
async fn a_mock_is_encrypted_on_both_transports_and_after_a_restart() {
    let issuer = Issuer::new();
    let mut mock = MockServer::start_encrypted(Mock::new(), issuer.certificate()).await.expect("it listens");
    mock.set("k", "v");
    for _ in 0..2 {
        for url in [mock.url(), mock.tcp_url()] {
            assert_eq!(issuer.ask(url, "GET k").await, "$1\r\nv\r\n+OK\r\n", "{url}");
        }
        mock.kill().await;
        mock.restart().await.expect("the ports were kept");
    }
}

#[tokio::test]
async fn the_nodes_of_a_cluster_announce_their_encrypted_ports() {
    let issuer = Issuer::new();
    for transports in
        [Transports::Tcp, Transports::Rdma(DeviceKind::Emulated), Transports::Both(DeviceKind::Emulated)]
    {
        let builder = MockCluster::builder(2).transports(transports).tls(issuer.certificate());
        let cluster = builder.start().await.expect("free ports");
        cluster.kill(1).await;
        cluster.restart(1).await.expect("the ports were kept");
        let slots = issuer.ask(&cluster.url(0), "CLUSTER SLOTS").await;
        for node in 0..cluster.len() {
            // Those that redirections name, as real nodes do: TCP if there is TCP.
            let url = cluster.tcp_url(node).unwrap_or_else(|| cluster.url(node));
            let port = url.rsplit(':').next().expect("a port");
            assert!(slots.contains(&format!(":{port}\r\n")), "{url}: {slots}");
            assert_eq!(issuer.ask(&url, "PING").await, "+PONG\r\n+OK\r\n", "{url}");
            let info = issuer.ask(&cluster.url(node), "INFO server").await;
            let is_over_tcp = transports != Transports::Rdma(DeviceKind::Emulated);
            assert_eq!(info.contains(&format!("name=tls,bind=127.0.0.1,port={port}")), is_over_tcp, "{info}");
        }
    }
}

#[tokio::test]
async fn the_program_reads_its_certificate_again_at_sighup() {
    let (issuer, other) = (Issuer::new(), Issuer::new());
    let (pair, next) = (issuer.0.issue(&["127.0.0.1"]), other.0.issue(&["127.0.0.1"]));
    let mut command = Command::new(env!("CARGO_BIN_EXE_valkey-rdma-mock"));
    command.args(["--device", "emulated", "--tls-rdma-port", "0", "--tls-port", "0", "--tcp-port", "0"]);
    command.arg("--tls-cert").arg(&pair.cert).arg("--tls-key").arg(&pair.key);
    let mut mock = Child::start(&mut command).expect("started");
    let urls = mock.lines("ready ", 3, PATIENCE).expect("ready");
    let schemes: Vec<_> = urls.iter().filter_map(|url| Some(url.split_once("://")?.0)).collect();
    assert_eq!(schemes, ["emulateds", "valkey", "valkeys"]);
    let encrypted = [&urls[0], &urls[2]];

    fs::write(&pair.cert, "rubbish").expect("a file");
    mock.signal(Signal::HUP);
    let note = mock.line_with("the old certificates stay in use", PATIENCE).expect("a note");
    assert!(note.contains(&*pair.cert.to_string_lossy()), "{note}");
    for url in encrypted {
        assert_eq!(issuer.ask(url, "PING").await, "+PONG\r\n+OK\r\n", "{url}");
    }

    fs::copy(next.cert, pair.cert).expect("a file");
    fs::copy(next.key, pair.key).expect("a file");
    mock.signal(Signal::HUP);
    mock.line_with("the certificates were read again", PATIENCE).expect("a note");
    for url in encrypted {
        assert_eq!(other.ask(url, "PING").await, "+PONG\r\n+OK\r\n", "{url}");
        assert!(issuer.connect(url).await.is_err(), "{url}");
    }
    mock.signal(Signal::TERM);
    assert!(mock.wait(PATIENCE).expect("it ends").success());
}

/// Longer than any step takes. Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(300);
