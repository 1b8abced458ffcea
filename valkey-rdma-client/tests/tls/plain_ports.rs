//! What should be encrypted is never sent plain, wherever the client is led.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use valkey_rdma_client::{Client, Config, ConnectCause, Error, TlsError};
use valkey_rdma_mock::{DeviceKind, Mock, MockCluster, MockServer, Server, ServerTls, Transports};
use valkey_rdma_server::{Address, Command, Handler, Peer, Reply};
use valkey_rdma_testkit::Authority;

use crate::{Encrypted, PATIENCE, connect, refusal, server_tls, url_of};

/// A plain server: answers anything with an error, as Valkey answers what is not RESP. Keeps what it has received.
struct Plain {
    address: SocketAddr,
    received: watch::Receiver<Vec<Vec<u8>>>,
}

impl Plain {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (kept, received) = watch::channel(Vec::new());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = vec![0; 4096];
                let len = stream.read(&mut bytes).await.unwrap_or(0);
                bytes.truncate(len);
                let _ = stream.write_all(b"-ERR Protocol error: unauthenticated multibulk length\r\n").await;
                let _ = stream.shutdown().await;
                let _ = stream.read_to_end(&mut bytes).await;
                kept.send_modify(|received| received.push(bytes));
            }
        });
        Self { address, received }
    }

    /// It was reached, and each time by the handshake of TLS alone: one record, then perhaps an alert.
    async fn saw_only_handshakes(&self) {
        let mut received = self.received.clone();
        let reached = timeout(PATIENCE, received.wait_for(|received| !received.is_empty()));
        for bytes in &*reached.await.expect("no hang").expect("it listens") {
            let mut rest = &bytes[..];
            while let [kind @ (0x16 | 0x15), 3, _, high, low, ..] = *rest {
                assert!(
                    kind == 0x15 || rest.len() == bytes.len(),
                    "a second record: {}",
                    bytes.escape_ascii()
                );
                rest = &rest[5 + usize::from(u16::from_be_bytes([high, low]))..];
            }
            assert!(rest.is_empty() && !bytes.is_empty(), "{}", bytes.escape_ascii());
        }
    }
}

#[tokio::test]
async fn a_plain_server_gets_no_command_and_the_error_says_so() {
    let (plain, issuer) = (Plain::start().await, Authority::new("Issuer of tests"));
    let (error, text) =
        refusal(&url_of(&format!("valkeys://:secret@{}", plain.address), &issuer.ca(), "")).await;
    assert!(matches!(error, TlsError::NotTls) && text.contains("does not speak TLS on this port"), "{text}");
    plain.saw_only_handshakes().await;
}

#[tokio::test]
async fn a_plain_url_at_a_tls_port_is_told_which_scheme_to_use() {
    let encrypted = Encrypted::start().await;
    for url in [encrypted.mock.tcp_url(), encrypted.mock.url()] {
        let error = connect(&url.replace("s://", "://")).await.expect_err("a TLS port").to_string();
        assert!(error.contains("this port requires TLS: connect with valkeys://"), "{error}");
        assert!(error.ends_with("add ca=FILE if its issuer is none of this system's"), "{error}");
    }
}

/// What the client says of a server that ends the connection or answers with an alert, as OpenSSL and rustls do.
#[tokio::test]
async fn a_closed_connection_and_an_alert_may_be_those_of_a_tls_port() {
    for (answer, hint) in [
        (&b"\x15\x03\x03\x00\x02\x02\x46"[..], "handshake; it answered with TLS: use valkeys://"),
        (b"", " Its TLS port needs valkeys://"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("valkey://{}", listener.local_addr().expect("bound"));
        let serve = async {
            let mut stream = listener.accept().await.expect("a client").0;
            stream.write_all(answer).await.expect("open");
            stream.shutdown().await.expect("open");
            let _ = stream.read_to_end(&mut Vec::new()).await;
        };
        let (connected, ()) = tokio::join!(connect(&url), serve);
        let text = format!("{:#}", connected.expect_err("no server"));
        assert!(text.ends_with(hint), "{text}");
    }
}

/// Stock servers on RDMA offer nothing.
#[tokio::test]
async fn over_rdma_a_server_without_tls_is_told_of_and_a_fallback_is_encrypted_too() {
    let (stock, encrypted, plain) =
        (MockServer::start().await, Encrypted::start().await, Plain::start().await);
    let url = url_of(&stock.url().replace("emulated://", "emulateds://:secret@"), &encrypted.issuer.ca(), "");
    let error = connect(&url).await.expect_err("no TLS there");
    let Error::Connect(failed) = &error else { panic!("{error}") };
    assert!(matches!(failed.cause(), ConnectCause::NoTlsOverRdma), "{error}");
    assert!(
        error.to_string().contains("the server offers no TLS over RDMA, as every stock Valkey"),
        "{error}"
    );
    assert!(stock.received().is_empty());

    // Servers on RDMA without TLS, beside each port.
    let tcp = encrypted.mock.tcp_url().trim_start_matches("valkeys://").parse().expect("an address");
    for (beside, login) in [(plain.address, ":secret@"), (tcp, "")] {
        let stock = format!("emulated://{beside}?device=inprocess");
        let _stock = Server::builder(Mock::new()).listen(stock).start().await.expect("a free port");
        let options = format!("device=inprocess&fallback=tcp&ca={}", encrypted.issuer.ca().display());
        let connected = connect(&format!("emulateds://{login}{beside}?{options}")).await;
        if beside == tcp {
            let info = connected.expect("over TCP").info();
            assert!(info.tls.is_some(), "{info}");
            let reason = info.fallback.as_deref().unwrap_or_default();
            assert!(reason.starts_with("the server offers no TLS over RDMA"), "{info}");
        } else {
            let text = connected.expect_err("plain").to_string();
            assert!(
                text.contains("; and over tcp instead: the peer does not speak TLS on this port"),
                "{text}"
            );
            plain.saw_only_handshakes().await;
        }
    }
}

async fn cluster(issuer: &Authority) -> MockCluster {
    let both = Transports::Both(DeviceKind::Emulated);
    let tls = server_tls(&issuer.issue(&["127.0.0.1"]));
    MockCluster::builder(2).replicas(1).transports(both).tls(tls).start().await.expect("free ports")
}

#[tokio::test]
async fn all_nodes_of_a_cluster_are_reached_as_the_seed_is() {
    let issuer = Authority::new("Issuer of tests");
    let mocks = cluster(&issuer).await;
    let tcp = mocks.tcp_url(0).expect("it listens there");
    for (seed, rules) in [(&*tcp, &[""][..]), (&mocks.url(0), &["&rdma_port=%2B1", "&rdma_port=discover"])] {
        for rule in rules {
            let client = connect(&cluster_url(seed, &issuer, rule)).await.expect("connected");
            for node in [0, 1] {
                // From its primary, moved to the other and back.
                let key = mocks.key_of(node, 0);
                client.command(["SET", &key, "x"]).await.expect("set");
                assert_eq!(client.query::<String>(["GET", &key]).await.expect("a value"), "x");
            }
            let status = client.cluster().expect("a cluster").status();
            let infos = client.connections();
            assert!(infos.iter().all(|connection| connection.info.tls.is_some()), "{status}");
            assert!(infos.len() >= 2, "{status}");
        }
    }
}

#[tokio::test]
async fn a_node_that_is_announced_at_a_plain_port_gets_no_command() {
    let issuer = Authority::new("Issuer of tests");
    let mocks = cluster(&issuer).await;
    let plain = Plain::start().await;
    mocks.announce_port(1, plain.address.port());
    let client = impatient(&mocks, &issuer).await;
    let error = client.command(["GET", &mocks.key_of(1, 0)]).await.expect_err("plain");
    assert!(format!("{error:#}").contains("does not speak TLS"), "{error:#}");
    plain.saw_only_handshakes().await;
}

/// ASK and MOVED name nodes that are in no map.
#[tokio::test]
async fn a_redirection_to_a_plain_port_sends_no_command_there() {
    let issuer = Authority::new("Issuer of tests");
    let mocks = cluster(&issuer).await;
    let client = impatient(&mocks, &issuer).await;
    for (kind, command) in [("ASK", "GET"), ("MOVED", "STRLEN")] {
        let (plain, key) = (Plain::start().await, mocks.key_of(0, 0));
        let slot = MockCluster::slot(&key);
        mocks.answer(0, command, Some(Reply::error(format!("{kind} {slot} {}", plain.address))));
        client.command([command, &key]).await.expect_err("plain");
        plain.saw_only_handshakes().await;
    }
}

/// A client whose commands do not wait long for a node that cannot be reached.
async fn impatient(mocks: &MockCluster, issuer: &Authority) -> Client {
    let url = cluster_url(&mocks.tcp_url(0).expect("it listens there"), issuer, "");
    let config = Config::default().offline_timeout(Duration::from_millis(200));
    Client::connect_with(url, &config).await.expect("connected")
}

fn cluster_url(seed: &str, issuer: &Authority, rule: &str) -> String {
    url_of(&seed.replacen("s://", "s+cluster://", 1), &issuer.ca(), rule)
}

/// A Sentinel that reports one address.
struct Sentinel(SocketAddr);

impl Handler for Sentinel {
    type Session = ();

    fn session(&self, _: &Peer) {}

    async fn call(&self, _: &mut Peer, (): &mut (), command: Command) -> Result<Reply, Reply> {
        if !command.is("SENTINEL") {
            return Err(command.unknown());
        }
        let (host, port) = (self.0.ip().to_string(), self.0.port().to_string());
        Ok(Reply::Array(vec![Reply::bulk(host), Reply::bulk(port)]))
    }
}

async fn sentinel(reports: SocketAddr, tls: Option<ServerTls>) -> (Server, SocketAddr) {
    let address = Address::tcp("127.0.0.1:0".parse().expect("an address"));
    let address = match tls {
        Some(tls) => address.tls(tls),
        None => address,
    };
    let server = Server::builder(Sentinel(reports)).listen(address).start().await.expect("a free port");
    let at = server.listening()[0].addr;
    (server, at)
}

#[tokio::test]
async fn sentinels_are_asked_over_tls_unless_the_url_says_otherwise() {
    let encrypted = Encrypted::start().await;
    let primary = encrypted.mock.tcp_url().trim_start_matches("valkeys://").parse().expect("an address");
    let tls = server_tls(&encrypted.issuer.issue(&["127.0.0.1"]));
    for (tls, option) in [(Some(tls), ""), (None, "&sentinel_tls=no")] {
        let (_server, at) = sentinel(primary, tls).await;
        let url = format!("valkeys+sentinel://{at}/mymaster");
        let client = connect(&url_of(&url, &encrypted.issuer.ca(), option)).await.expect("connected");
        assert!(client.info().tls.is_some(), "{}", client.info());
    }
}

#[tokio::test]
async fn neither_a_plain_sentinel_nor_a_plain_server_that_it_reports_gets_a_command() {
    let issuer = Authority::new("Issuer of tests");
    let plain = Plain::start().await;
    let options = format!("?ca={}&sentinel_password=secret&timeout=1s", issuer.ca().display());
    let url = format!("valkeys+sentinel://:secret@{}/mymaster{options}", plain.address);
    let error = Client::connect(&*url).await.expect_err("a plain Sentinel");
    assert!(error.to_string().contains("does not speak TLS on this port"), "{error}");
    plain.saw_only_handshakes().await;

    let plain = Plain::start().await;
    let (_server, at) = sentinel(plain.address, None).await;
    let options = format!("?ca={}&sentinel_tls=no&timeout=1s", issuer.ca().display());
    let url = format!("valkeys+sentinel://:secret@{at}/mymaster{options}");
    let error = Client::connect(&*url).await.expect_err("a plain server");
    assert!(error.to_string().contains("does not speak TLS on this port"), "{error}");
    plain.saw_only_handshakes().await;
}
