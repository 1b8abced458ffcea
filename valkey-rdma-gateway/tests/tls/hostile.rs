//! Bytes other than a handshake, while others work.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use valkey_rdma_gateway::Share;
use valkey_rdma_mock::Mock;
use valkey_rdma_transport::tls::{TlsConnector, TlsError};
use valkey_rdma_transport::{AnyStream, Config, DeviceKind, FeatureSet, Stream};

use crate::door::Door;
use crate::support::{Client, PATIENCE, mock_with};

/// The first message of a client, and what is done to it.
async fn hello(door: &Door) -> Vec<u8> {
    let (client, mut server) = tokio::io::duplex(16 << 10);
    let connector = TlsConnector::new(door.trusting());
    let client = async move { connector.connect("localhost", AnyStream::Other(Box::new(client))).await };
    let read = async move {
        let mut head = [0; 5];
        server.read_exact(&mut head).await.unwrap();
        let mut rest = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
        server.read_exact(&mut rest).await.unwrap();
        [&head[..], &rest].concat()
    };
    let (ended, hello): (Result<_, TlsError>, _) = tokio::join!(client, read);
    assert!(ended.is_err());
    hello
}

fn damaged(hello: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = match random.u8(..4) {
        0 => (0..random.usize(..300)).map(|_| random.u8(..)).collect(),
        _ => hello.to_vec(),
    };
    for _ in 0..random.usize(..4) {
        match bytes.len() {
            0 => break,
            len => bytes[random.usize(..len)] = random.u8(..),
        }
    }
    bytes.truncate(random.usize(..=bytes.len()));
    // What follows a handshake that went well is not encrypted.
    bytes.extend((0..random.usize(..50)).map(|_| random.u8(..)));
    bytes
}

#[tokio::test]
async fn damaged_handshakes_end_their_own_client_only() {
    const CASES: u64 = 300;
    let (_server, _, url) = mock_with(Mock::new()).await;
    let door = Door::start(&url, Share::Auto).await;
    let hello = hello(&door).await;
    let mut witness: Client = door.client().await;
    let config = Config::default().requires(FeatureSet::TLS);
    for case in 0..CASES {
        let mut random = fastrand::Rng::with_seed(case);
        let bytes = damaged(&hello, &mut random);
        let mut stream = match random.bool() {
            true => AnyStream::Tcp(TcpStream::connect(door.tcp).await.unwrap()),
            false => {
                AnyStream::Device(Stream::connect(DeviceKind::Emulated, door.device, &config).await.unwrap())
            }
        };
        let exchange = async {
            // The gateway may have closed before it has read all.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        };
        timeout(PATIENCE, exchange).await.unwrap_or_else(|_| panic!("case {case} does not end"));
        assert_eq!(witness.say(&format!("ECHO {case}")).await, case.to_string());
    }
    assert_eq!(door.client().await.say("PING").await, "PONG");
    door.until("gateway_clients", 2).await;
    assert_eq!(door.info("gateway_clients_tls").await, 1, "the witness");
}
