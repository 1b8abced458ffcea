//! Connections of an encrypted listener, over streams in memory, on a clock of the test.

use std::fs;
use std::sync::LazyLock;

use valkey_rdma_transport::tls::{ClientTls, ServerTls, TlsConnector, TlsError, Verify};

use super::*;

/// A server whose listener is encrypted.
fn door(limits: &Limits) -> Door {
    Door { tls: Some(TLS.clone()), ..Door::new(limits) }
}

static TLS: LazyLock<TlsAcceptor> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let at = |end: &str| std::env::temp_dir().join(format!("accept-{}.{end}", std::process::id()));
    let (cert, key) = (at("crt"), at("key"));
    fs::write(&cert, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = TlsAcceptor::new(ServerTls::new(&cert, &key)).unwrap();
    fs::remove_file(cert).unwrap();
    fs::remove_file(key).unwrap();
    tls
});

async fn connect(stream: DuplexStream) -> Result<AnyStream, TlsError> {
    let connector = TlsConnector::new(ClientTls::default().with_verify(Verify::None));
    connector.connect("localhost", AnyStream::Other(Box::new(stream))).await
}

/// The first message of a client.
async fn client_hello() -> Vec<u8> {
    let (client, mut stream) = duplex(16 * 1024);
    let client = tokio::spawn(connect(client));
    let mut record = vec![0; 5];
    stream.read_exact(&mut record).await.unwrap();
    let len = u16::from_be_bytes([record[3], record[4]]);
    record.resize(5 + usize::from(len), 0);
    stream.read_exact(&mut record[5..]).await.unwrap();
    client.abort();
    record
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_stops_holds_its_place_no_longer_than_the_limit() {
    let hello = client_hello().await;
    for sent in [0, 1, 5, hello.len() / 2, hello.len()] {
        let mut door = door(&Limits::default().max_connections(1));
        let mut client = door.open();
        client.write_all(&hello[..sent]).await.unwrap();
        let begun = Instant::now();
        door.connections.join_next().await.unwrap().unwrap();
        assert_eq!(begun.elapsed().as_secs(), HANDSHAKE_TIMEOUT.as_secs(), "after {sent} bytes");
        assert_eq!(door.shared.free.available_permits(), 1);
        assert_eq!(door.shared.monitor.refused().broken_tls, 1);
        assert_eq!(door.shared.monitor.counters().accepted, 0, "no session was made");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_waits_for_no_handshake() {
    let mut door = door(&Limits::default());
    let _client = door.open();
    door.shared.stop.cancel();
    let begun = Instant::now();
    door.connections.join_next().await.unwrap().unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_client_too_many_gets_its_reply_over_tls_if_it_hurries() {
    let mut door = door(&Limits::default().max_connections(0));
    let mut client = connect(door.open()).await.unwrap();
    let mut reply = String::new();
    client.read_to_string(&mut reply).await.unwrap();
    assert_eq!(reply, FULL);

    let mut silent = door.open();
    assert_eq!(all_from(&mut silent).await, "");
    assert_eq!(door.shared.refusing.available_permits(), REFUSED_AT_ONCE);
}

/// The close of a TLS connection is a message, too, and there is no room for it.
#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_does_not_keep_its_place() {
    let limits = Limits::default().max_connections(1).idle_timeout(Duration::from_secs(1));
    let mut door = door(&limits);
    let mut client = connect(door.open()).await.unwrap();
    client.write_all(&b"PING\r\n".repeat(2000)).await.unwrap();
    client.flush().await.unwrap();
    timeout(PATIENCE, door.connections.join_next()).await.expect("it is closed").unwrap().unwrap();
    assert_eq!(door.shared.free.available_permits(), 1);
    assert_eq!(door.shared.monitor.refused().idle, 1);
}
