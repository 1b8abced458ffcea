//! Clients and servers that use TLS.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use valkey_rdma_client::Client;
use valkey_rdma_gateway::{Limits, Share};
use valkey_rdma_mock::Mock;
use valkey_rdma_testkit::Authority;
use valkey_rdma_transport::AnyStream;
use valkey_rdma_transport::tls::{ServerTls, TlsAcceptor};

use crate::door::Door;
use crate::support::{
    Client as RawClient, PATIENCE, UnixServer, encode, gateway, mock_with, socket_path, start,
};

const LARGE: usize = 20 << 20;

/// Small commands, many at once, and a large value.
async fn exchange(client: &Client) {
    client.command(["SET", "k", "v"]).await.unwrap();
    assert_eq!(client.command(["GET", "k"]).await.unwrap().as_str(), Some("v"));
    let large = "x".repeat(LARGE);
    client.command(["SET", "large", &large]).await.unwrap();
    assert!(client.command(["GET", "large"]).await.unwrap().as_str() == Some(&*large));
    let many: Vec<_> =
        (0..100).map(|number| client.command(["ECHO".to_owned(), number.to_string()])).collect();
    for (number, reply) in many.into_iter().enumerate() {
        assert_eq!(reply.await.unwrap().as_str(), Some(&*number.to_string()));
    }
}

async fn clients_are_served_in_front_of(server: &str) {
    for share in [Share::Auto, Share::Never] {
        let door = Door::start(server, share).await;
        for url in door.urls() {
            let client = Client::connect(url).await.unwrap();
            exchange(&client).await;
            client.close().await;
        }
    }
}

#[tokio::test]
async fn clients_reach_a_server_without_tls_over_encrypted_connections() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    clients_are_served_in_front_of(&url).await;
}

/// Nothing but the socket's own machine sees a byte that is not encrypted.
#[tokio::test]
async fn the_server_behind_the_encrypted_door_is_at_a_unix_socket() {
    let path = socket_path();
    let _server = UnixServer::start(&path, Mock::new()).await;
    let url = format!("unix://{}", path.display());
    clients_are_served_in_front_of(&url).await;
    std::fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn an_operator_sees_who_is_encrypted() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let door = Door::start(&url, Share::Auto).await;
    let [tcp, device] = door.urls();
    let (_one, _other) = (Client::connect(tcp).await.unwrap(), Client::connect(device).await.unwrap());
    let mut owner = door.owner().await;
    assert_eq!((owner.info("gateway_clients").await, owner.info("gateway_clients_tls").await), (3, 2));
    let list = owner.say("CLIENT LIST").await;
    let with = |field: &str| list.lines().filter(|line| line.contains(field)).count();
    assert_eq!((with(" tls=TLS1.3 "), with(" tls=no ")), (2, 1), "{list}");
    assert_eq!(owner.info("gateway_tls_handshakes_failed").await, 0);
}

/// Encrypted between two gateways, and plain only beside each of them.
#[tokio::test]
async fn two_gateways_encrypt_what_is_between_them() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    for far in [Share::Auto, Share::Never] {
        let door = Door::start(&url, far).await;
        for url in door.urls() {
            for near in [Share::Auto, Share::Never] {
                let near = gateway(&url, near).await;
                let mut client = near.client().await;
                assert_eq!(client.say("SET k v").await, "OK");
                assert_eq!(client.say("MULTI").await, "OK");
                assert_eq!(client.say("GET k").await, "QUEUED");
                assert_eq!(client.say("EXEC").await, "[v]");
                let value = vec![b'x'; LARGE];
                client.send(encode([&b"SET"[..], b"large", &value])).await;
                client.expect_bytes(b"+OK\r\n").await;
                client.command("GET large").await;
                client.expect_bytes(format!("${LARGE}\r\n").as_bytes()).await;
                client.expect_bytes(&value).await;
                client.expect_bytes(b"\r\n").await;
            }
        }
    }
}

#[tokio::test]
async fn the_gateway_shows_that_its_server_is_encrypted() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let door = Door::start(&url, Share::Auto).await;
    let [tcp, _] = door.urls();
    let near = gateway(&tcp, Share::Auto).await;
    let mut client = near.client().await;
    assert_eq!(client.say("PING").await, "PONG");
    let info = client.say("INFO gateway").await;
    assert!(info.contains(&format!("gateway_server:valkeys://{}\r\n", door.tcp)), "{info}");
    assert!(info.contains(",transport=tcp,tls=TLS 1.3 TLS_"), "{info}");
}

/// The password must not leave before the server is known.
#[tokio::test]
async fn a_server_that_is_not_trusted_gets_no_login() {
    let (server, _, url) = mock_with(Mock::new().requirepass("s3cret")).await;
    let door = Door::start(&url, Share::Auto).await;
    let stranger = Door::start(&url, Share::Auto).await;
    let url = format!("valkeys://:s3cret@{}?ca={}", door.tcp, stranger.issuer.ca().display());
    let mut config = crate::support::config(&url, Share::Auto, Limits::default());
    config.limits.offline_ms = 100;
    let near = start(&config).await;
    let mut client = near.client().await;
    client.command("GET k").await;
    client.expect_end().await;
    door.until("gateway_tls_handshakes_failed", near.info("gateway_connect_failures").await.max(1)).await;
    assert_eq!(door.info("gateway_clients_tls").await, 0);
    server.shutdown().await;
}

/// A server that answers each connection with a part of a reply. Then it announces the end of the connection, or does not. Returns its URL.
async fn stopping_server(issuer: &Authority, announces: bool) -> String {
    let pair = issuer.issue(&["127.0.0.1"]);
    let acceptor = TlsAcceptor::new(ServerTls::new(pair.cert, pair.key)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("valkeys://{}?ca={}", listener.local_addr().unwrap(), issuer.ca().display());
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(AnyStream::Tcp(tcp)).await else { continue };
            // Read, so that the system does not reset the connection.
            let _ = stream.read(&mut [0; 512]).await;
            let _ = stream.write_all(b"$5\r\nha").await;
            let _ = stream.flush().await;
            if announces {
                let _ = stream.shutdown().await;
            }
        }
    });
    url
}

#[tokio::test]
async fn without_sharing_a_cut_of_the_server_is_a_cut_for_its_client() {
    let issuer = Authority::new("Issuer of the server");
    for announces in [true, false] {
        let url = stopping_server(&issuer, announces).await;
        let (door, plain) = (Door::start(&url, Share::Never).await, gateway(&url, Share::Never).await);
        for mut client in [
            door.stream(door.trusting()).await.unwrap(),
            door.device_stream().await,
            AnyStream::Tcp(TcpStream::connect(plain.tcp).await.unwrap()),
        ] {
            client.write_all(b"GET k\r\n").await.unwrap();
            client.flush().await.unwrap();
            let mut reply = Vec::new();
            let read = tokio::time::timeout(PATIENCE, client.read_to_end(&mut reply)).await.unwrap();
            assert_eq!(read.is_ok(), announces, "{client:?}: {read:?}");
            assert_eq!(reply, b"$5\r\nha", "{client:?}");
        }
    }
}

#[tokio::test]
async fn a_client_that_ends_its_side_gets_its_last_replies_and_the_end_of_tls() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    for share in [Share::Auto, Share::Never] {
        let door = Door::start(&url, share).await;
        for commands in ["SET k v\r\nGET k\r\n", "SET k v\r\nMULTI\r\nEXEC\r\nGET k\r\n"] {
            let mut client: RawClient = door.client().await;
            client.send(commands).await;
            client.stream.shutdown().await.unwrap();
            let mut replies = Vec::new();
            let read = client.stream.read_to_end(&mut replies);
            tokio::time::timeout(PATIENCE, read).await.unwrap().expect("an end, not a cut");
            assert!(replies.ends_with(b"$1\r\nv\r\n"), "{}", replies.escape_ascii());
        }
    }
}
