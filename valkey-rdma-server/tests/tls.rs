//! Encrypted listeners, over TCP and over the emulated device.
#![cfg(feature = "tls")]

mod support;

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use support::{Wire, localhost, until, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use valkey_rdma_server::{
    Address, BindError, ClientAuth, Command, DeviceKind, Handler, Listening, Peer, Reply, Server, ServerTls,
    TlsError, Transport, TransportConfig, TransportError,
};
use valkey_rdma_testkit::{Authority, Pair};
use valkey_rdma_transport::tls::{ClientTls, TlsConnector};
use valkey_rdma_transport::{AnyStream, CloseReason, FeatureSet, Stream};

/// `WHO` replies what the handler knows of the client's encryption, and `DIRECT` whether there are direct transfers; the others are those
/// of a store.
#[derive(Default)]
struct Doorman(support::Store);

impl Handler for Doorman {
    type Session = ();

    fn session(&self, _peer: &Peer) {}

    async fn call(&self, peer: &mut Peer, session: &mut (), command: Command) -> Result<Reply, Reply> {
        if command.is("DIRECT") {
            return Ok(Reply::Integer(peer.direct().is_some().into()));
        }
        if !command.is("WHO") {
            return self.0.call(peer, session, command).await;
        }
        Ok(Reply::simple(match peer.tls() {
            None => "plain".to_owned(),
            Some(tls) => format!("{} with {}", tls.version, tls.peer_certificates.len()),
        }))
    }
}

/// An issuer, and a server with its certificate on TCP and on the emulated device.
struct Encrypted {
    issuer: Authority,
    pair: Pair,
    server: Server,
}

impl Encrypted {
    async fn start() -> Self {
        Self::start_with(|tls, _| tls).await
    }

    async fn start_with(settings: impl Fn(ServerTls, &Authority) -> ServerTls) -> Self {
        let issuer = Authority::new("Issuer of servers");
        let pair = issuer.issue(&["localhost", "127.0.0.1"]);
        let server =
            serve(&settings(ServerTls::new(&pair.cert, &pair.key), &issuer)).await.expect("it listens");
        Self { issuer, pair, server }
    }

    /// A client that trusts the issuer.
    fn client(&self) -> ClientTls {
        ClientTls::default().with_ca(self.issuer.ca())
    }
}

async fn serve(tls: &ServerTls) -> Result<Server, BindError> {
    let windows = TransportConfig::default().rx_size(100_001);
    Server::builder(Doorman::default())
        .listen(Address::tcp(localhost()).tls(tls.clone()))
        .listen(Address::rdma(DeviceKind::Emulated, localhost(), &windows).tls(tls.clone()))
        .start()
        .await
}

/// What is below TLS. Over RDMA, TLS is agreed on.
async fn open(listening: &Listening) -> AnyStream {
    match listening.transport {
        Transport::Rdma(device) => {
            let config = TransportConfig::default().requires(FeatureSet::TLS);
            AnyStream::Device(Stream::connect(device, listening.addr, &config).await.expect("connected"))
        }
        _ => AnyStream::Tcp(TcpStream::connect(listening.addr).await.expect("connected")),
    }
}

async fn connect(listening: &Listening, tls: &ClientTls) -> Result<AnyStream, TlsError> {
    let stream = open(listening).await;
    let connector = TlsConnector::new(tls.clone());
    within("the handshake ends", connector.connect("localhost", stream)).await
}

async fn ask(stream: &mut AnyStream, command: &str) -> Result<String, std::io::Error> {
    stream.write_all(format!("{command}\r\n").as_bytes()).await?;
    within("it is read", stream.flush()).await?;
    let mut reply = Vec::new();
    while !reply.ends_with(b"\r\n") {
        reply.push(within("a reply comes", stream.read_u8()).await?);
    }
    Ok(String::from_utf8_lossy(&reply).trim_end().to_owned())
}

#[tokio::test]
async fn clients_are_served_over_both_transports_and_the_handler_sees_that() {
    let encrypted = Encrypted::start().await;
    let schemes: Vec<_> =
        encrypted.server.urls().filter_map(|url| Some(url.split_once("://")?.0.to_owned())).collect();
    assert_eq!(schemes, ["valkeys", "emulateds"]);
    for listening in encrypted.server.listening() {
        let mut client = connect(&listening, &encrypted.client()).await.expect("encrypted");
        assert_eq!(ask(&mut client, "PING").await.expect("a reply"), "+PONG");
        assert_eq!(ask(&mut client, "WHO").await.expect("a reply"), "+TLS 1.3 with 0");
    }
    assert_eq!(encrypted.server.refused().broken_tls, 0);
}

#[tokio::test]
async fn certificates_of_clients_are_verified_where_they_are_asked_for() {
    let others = Authority::new("Another issuer");
    let stranger = others.issue(&["mallory"]);
    for auth in [ClientAuth::No, ClientAuth::Optional, ClientAuth::Required] {
        let encrypted =
            Encrypted::start_with(|tls, issuer| tls.with_client_ca(issuer.ca()).with_client_auth(auth)).await;
        let known = encrypted.issuer.issue(&["alice"]);
        let expired = encrypted.issuer.issue_for_days(&["bob"], -10, -2);
        let with = |pair: &Pair| encrypted.client().with_cert(&pair.cert).with_key(&pair.key);
        for (whose, tls, expected) in [
            ("none", encrypted.client(), ["TLS 1.3 with 0", "TLS 1.3 with 0", ""]),
            ("a known one", with(&known), ["TLS 1.3 with 0", "TLS 1.3 with 1", "TLS 1.3 with 1"]),
            ("an expired one", with(&expired), ["TLS 1.3 with 0", "", ""]),
            ("that of another issuer", with(&stranger), ["TLS 1.3 with 0", "", ""]),
        ] {
            let expected = Some(expected[auth as usize]).filter(|expected| !expected.is_empty());
            for listening in encrypted.server.listening() {
                // A client of TLS 1.3 has finished before the server looks at its certificate.
                let seen = match connect(&listening, &tls).await {
                    Ok(mut client) => ask(&mut client, "WHO").await.ok(),
                    Err(_) => None,
                };
                let expected = expected.map(|expected| format!("+{expected}"));
                assert_eq!(seen, expected, "{auth}, {whose}, {listening}");
            }
        }
    }
}

#[tokio::test]
async fn plain_commands_to_an_encrypted_port_are_not_run() {
    let encrypted = Encrypted::start().await;
    for listening in encrypted.server.listening() {
        // As a client that knows nothing of TLS.
        let mut plain = Wire::connect(&Listening { tls: false, ..listening }).await;
        plain.send("SET k plain\r\n").await;
        let reply = plain.rest_or_reset().await;
        assert!(reply.starts_with(b"-ERR this port requires TLS: "), "{listening}: {}", reply.escape_ascii());
        let mut client = connect(&listening, &encrypted.client()).await.expect("encrypted");
        assert_eq!(ask(&mut client, "DEL k").await.expect("a reply"), ":0", "{listening}");
    }
    until("both are counted", async || encrypted.server.refused().broken_tls == 2).await;
}

#[tokio::test]
async fn a_client_with_tls_ends_at_a_port_without_f9() {
    let issuer = Authority::new("Issuer of servers");
    let any = localhost();
    let server = Server::builder(support::Store::default()).tcp(any);
    let server = server.rdma(DeviceKind::Emulated, any, &TransportConfig::default()).start();
    for listening in server.await.expect("it listens").listening() {
        match listening.transport {
            Transport::Rdma(device) => {
                let config = TransportConfig::default().requires(FeatureSet::TLS);
                let error = Stream::connect(device, listening.addr, &config).await.expect_err("it has none");
                let expected = matches!(error, TransportError::Lost(CloseReason::NotOffered { .. }));
                assert!(expected, "{error}");
            }
            _ => {
                let tls = ClientTls::default().with_ca(issuer.ca());
                let error = connect(&listening, &tls).await.expect_err("it has none");
                assert!(matches!(error, TlsError::NotTls), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn an_end_is_told_from_a_cut() {
    let encrypted = Encrypted::start().await;
    for listening in encrypted.server.listening() {
        let mut client = connect(&listening, &encrypted.client()).await.expect("encrypted");
        assert_eq!(ask(&mut client, "QUIT").await.expect("a reply"), "+OK");
        let end = within("the server closes", client.read(&mut [0])).await;
        assert_eq!(end.expect("in good order"), 0, "{listening}");
    }
    let mut clients = Vec::new();
    for listening in encrypted.server.listening() {
        let mut client = connect(&listening, &encrypted.client()).await.expect("encrypted");
        assert_eq!(ask(&mut client, "PING").await.expect("a reply"), "+PONG");
        clients.push(client);
    }
    encrypted.server.cut().await;
    for mut client in clients {
        let error = within("the connection ends", client.read(&mut [0])).await.expect_err("it was cut");
        assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{error}");
    }
}

#[tokio::test]
async fn half_a_command_before_a_cut_is_not_run() {
    let encrypted = Encrypted::start().await;
    for listening in encrypted.server.listening() {
        let mut client = connect(&listening, &encrypted.client()).await.expect("encrypted");
        client.write_all(b"SET k whole\r\nSET k ha").await.expect("sent");
        let mut reply = [0; 5];
        within("a reply comes", client.read_exact(&mut reply)).await.expect("a reply");
        drop(client);
        until("it is gone", async || encrypted.server.monitor().counters().connections == 0).await;
        let mut client = connect(&listening, &encrypted.client()).await.expect("encrypted");
        client.write_all(b"GET k\r\n").await.expect("sent");
        let mut reply = [0; 11];
        within("a reply comes", client.read_exact(&mut reply)).await.expect("a reply");
        assert_eq!(&reply, b"$5\r\nwhole\r\n");
        drop(client);
        until("it is gone", async || encrypted.server.monitor().counters().connections == 0).await;
    }
}

#[tokio::test]
async fn connections_move_to_threads_of_the_server() {
    let issuer = Authority::new("Issuer of servers");
    let pair = issuer.issue(&["localhost"]);
    let tls = ServerTls::new(pair.cert, pair.key);
    let any = localhost();
    let config = TransportConfig::default();
    let server = Server::builder(Doorman::default())
        .threads(2)
        .listen(Address::tcp(any).tls(tls.clone()))
        .listen(Address::rdma(DeviceKind::Emulated, any, &config).tls(tls));
    let server = server.start().await.expect("it listens");
    let mut clients = Vec::new();
    for listening in [server.listening(), server.listening()].concat() {
        let tls = ClientTls::default().with_ca(issuer.ca());
        clients.push(connect(&listening, &tls).await.expect("encrypted"));
    }
    for client in &mut clients {
        assert_eq!(ask(client, "PING").await.expect("a reply"), "+PONG");
    }
    let stopping = tokio::spawn(server.shutdown());
    for mut client in clients {
        let end = within("the server closes", client.read(&mut [0])).await;
        assert_eq!(end.expect("in good order"), 0);
    }
    within("the server stops", stopping).await.expect("no panic");
}

#[tokio::test]
async fn certificates_that_have_changed_are_read_again() {
    let encrypted = Encrypted::start().await;
    let mut old = Vec::new();
    for listening in encrypted.server.listening() {
        old.push(connect(&listening, &encrypted.client()).await.expect("encrypted"));
    }
    let other = Authority::new("Issuer of next year");
    let next = other.issue(&["localhost"]);
    fs::copy(&next.cert, &encrypted.pair.cert).expect("a file");

    let error = encrypted.server.reload_tls().expect_err("the key is the old one").to_string();
    assert!(error.contains(&*encrypted.pair.key.to_string_lossy()), "{error}");
    for listening in encrypted.server.listening() {
        connect(&listening, &encrypted.client()).await.expect("the old certificate is in use");
    }

    fs::copy(&next.key, &encrypted.pair.key).expect("a file");
    encrypted.server.reload_tls().expect("the two belong together");
    for listening in encrypted.server.listening() {
        let error = connect(&listening, &encrypted.client()).await.expect_err("another issuer");
        assert!(matches!(error, TlsError::UnknownIssuer), "{error}");
        let tls = ClientTls::default().with_ca(other.ca());
        connect(&listening, &tls).await.expect("the new certificate is in use");
    }
    for client in &mut old {
        assert_eq!(ask(client, "PING").await.expect("a reply"), "+PONG");
    }
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_at_the_start() {
    let issuer = Authority::new("Issuer of servers");
    let (pair, other) = (issuer.issue(&["localhost"]), issuer.issue(&["localhost"]));
    let rubbish = issuer.folder().join("rubbish.pem");
    fs::write(&rubbish, "-----BEGIN CERTIFICATE-----\nnot base64!\n").expect("a file");
    let tls = |cert: &Path, key: &Path| ServerTls::new(cert, key);
    let missing = issuer.folder().join("missing.pem");
    for (settings, named) in [
        (tls(&missing, &pair.key), &missing),
        (tls(&pair.cert, &missing), &missing),
        (tls(issuer.folder(), &pair.key), &issuer.folder().to_owned()),
        (tls(&rubbish, &pair.key), &rubbish),
        (tls(&pair.key, &pair.key), &pair.key),
        (tls(&pair.cert, &pair.cert), &pair.cert),
        (tls(&pair.cert, &other.key), &other.key),
        (tls(&pair.cert, &pair.key).with_client_ca(&missing), &missing),
        (tls(&pair.cert, &pair.key).with_client_ca(&rubbish), &rubbish),
    ] {
        let error = serve(&settings).await.expect_err("it cannot be used").to_string();
        assert!(error.contains(&*named.to_string_lossy()), "{settings:?}: {error}");
    }
    let error = serve(&tls(&pair.cert, &pair.key).with_client_auth(ClientAuth::Required))
        .await
        .expect_err("no issuers");
    assert!(error.to_string().contains("client_ca"), "{error}");
}

#[tokio::test]
async fn urls_name_their_certificates() {
    let issuer = Authority::new("Issuer of servers");
    let pair = issuer.issue(&["localhost"]);
    let tls = ServerTls::new(&pair.cert, &pair.key);
    let files = format!("cert={}&key={}", pair.cert.display(), pair.key.display());
    let builder = Server::builder(Doorman::default())
        .listen(format!("rediss://127.0.0.1:0?{files}"))
        .listen(Address::from("valkeys://127.0.0.1:0").tls(tls.clone()))
        .listen(format!("emulateds://127.0.0.1:0?rx_size=65536&{files}&client_ca={}", issuer.ca().display()));
    let mut server = builder.start().await.expect("it listens");
    let later = server.listen(format!("valkeys://127.0.0.1:0?{files}")).await.expect("it listens");
    assert!(later.tls && later.to_string().starts_with("valkeys://127.0.0.1:"), "{later}");
    let shown = issuer.issue(&["alice"]);
    let client = ClientTls::default().with_ca(issuer.ca()).with_cert(shown.cert).with_key(shown.key);
    for listening in server.listening() {
        let mut client = connect(&listening, &client).await.expect("encrypted");
        assert_eq!(ask(&mut client, "PING").await.expect("a reply"), "+PONG");
    }
    for (address, expected) in [
        (Address::from("valkeys://127.0.0.1:0"), "add cert=FILE and key=FILE"),
        (Address::from(format!("rdmas://127.0.0.1:0?{files}")).tls(tls.clone()), "given twice"),
        (Address::from("valkey://127.0.0.1:0").tls(tls), "use rdmas, emulateds or valkeys"),
    ] {
        let error = server.listen(address).await.expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Their values would be plain.
#[tokio::test]
async fn direct_transfers_are_not_offered_beside_tls_d1() {
    let encrypted = Encrypted::start().await;
    let address = Address::rdma(DeviceKind::Emulated, localhost(), &TransportConfig::default());
    let tls = ServerTls::new(&encrypted.pair.cert, &encrypted.pair.key);
    let builder = Server::builder(Doorman::default()).direct(true);
    let server = builder.listen(address.tls(tls)).start().await.expect("it listens");
    let config = TransportConfig::default().requires(FeatureSet::TLS).wants(FeatureSet::DIRECT);
    let addr = server.listening()[0].addr;
    let stream = Stream::connect(DeviceKind::Emulated, addr, &config).await.expect("connected");
    let connector = TlsConnector::new(encrypted.client());
    let stream = connector.connect("localhost", AnyStream::Device(stream)).await;
    let mut stream = stream.expect("encrypted");
    assert_eq!(ask(&mut stream, "DIRECT").await.expect("a reply"), ":0");
}
