//! Peers that a listener refuses: without TLS at an encrypted one, with TLS at a plain one, and too many.

use std::future::Future;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use valkey_rdma_client::Client;
use valkey_rdma_gateway::{Activation, Gateway, Listen, Share};
use valkey_rdma_mock::{DeviceKind, Mock, TransportConfig};
use valkey_rdma_transport::{FeatureSet, Stream};

use crate::door::Door;
use crate::support::{Client as RawClient, PATIENCE, advance, mock_with, text};

const REQUIRES_TLS: &str = "ERR this port requires TLS: connect with valkeys://";

#[tokio::test]
async fn a_client_without_tls_gets_an_error_that_says_what_to_do() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    for share in [Share::Auto, Share::Never] {
        let door = Door::start(&url, share).await;
        let mut client = RawClient::new(TcpStream::connect(door.tcp).await.unwrap());
        client.command("AUTH s3cret").await;
        let reply = text(&client.reply().await);
        assert!(reply.starts_with(&format!("-{REQUIRES_TLS}")), "{reply}");
        client.expect_end().await;

        let refused = Client::connect(format!("emulated://{}", door.device)).await.unwrap_err();
        assert!(format!("{refused:#}").contains(REQUIRES_TLS), "{refused:#}");
        assert!(door.owner().await.say("PING").await == "PONG");
    }
}

#[tokio::test]
async fn a_client_with_tls_learns_that_a_listener_has_none() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let mut config = crate::support::config(&url, Share::Auto, Default::default());
    config.routes[0].listen =
        ["tcp", "emulated"].map(|kind| format!("{kind}:127.0.0.1:0").parse().unwrap()).into();
    let gateway = Gateway::start(&config, &Activation::default()).await.unwrap();
    let listening = gateway.listening();
    let [Listen::Tcp(tcp), Listen::Emulated(device)] = listening[..] else { panic!("{listening:?}") };
    for (url, part) in [
        (format!("valkeys://{tcp}?verify=none"), "does not speak TLS on this port"),
        (format!("emulateds://{device}?verify=none"), "TLS"),
    ] {
        let refused = Client::connect(&*url).await.unwrap_err();
        assert!(format!("{refused:#}").contains(part), "{refused:#}");
    }
}

/// A load balancer connects to see whether somebody listens.
#[tokio::test]
async fn a_peer_that_leaves_without_a_handshake_is_no_failure() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let door = Door::start(&url, Share::Auto).await;
    for _ in 0..10 {
        drop(TcpStream::connect(door.tcp).await.unwrap());
    }
    // The clients before it have been accepted.
    assert_eq!(door.client().await.say("PING").await, "PONG");
    door.until("gateway_clients", 1).await;
    assert_eq!(door.info("gateway_clients_accepted").await, 13);
    assert_eq!(door.info("gateway_tls_handshakes_failed").await, 0);
}

#[tokio::test]
async fn a_handshake_that_stops_ends_and_delays_nobody() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    for share in [Share::Auto, Share::Never] {
        let door = Door::start(&url, share).await;
        let mut stopped = Vec::new();
        // The beginning of a record of 512 bytes, and nothing.
        for begun in [&[22, 3, 1, 2, 0, 1][..], &[]] {
            let mut tcp = TcpStream::connect(door.tcp).await.unwrap();
            tcp.write_all(begun).await.unwrap();
            let config = TransportConfig::default().requires(FeatureSet::TLS);
            let mut device = Stream::connect(DeviceKind::Emulated, door.device, &config).await.unwrap();
            device.write_all(begun).await.unwrap();
            stopped.extend([RawClient::new(tcp), RawClient::new(device)]);
        }
        // It has agreed on nothing, and sends nothing.
        let config = TransportConfig::default();
        let silent = Stream::connect(DeviceKind::Emulated, door.device, &config).await.unwrap();
        stopped.push(RawClient::new(silent));
        assert_eq!(door.client().await.say("PING").await, "PONG");
        advance(11).await;
        for client in &mut stopped {
            client.expect_end().await;
        }
        assert_eq!(door.client().await.say("PING").await, "PONG");
    }
}

#[tokio::test]
async fn a_stop_and_a_kill_end_a_handshake() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let door = Door::start(&url, Share::Auto).await;
    let mut owner = door.owner().await;
    let mut stopped = RawClient::new(TcpStream::connect(door.tcp).await.unwrap());
    while owner.info("gateway_clients").await < 2 {}
    assert_eq!(owner.say("CLIENT KILL ID 2").await, ":1");
    stopped.expect_end().await;
    let mut stopped = RawClient::new(TcpStream::connect(door.tcp).await.unwrap());
    while owner.info("gateway_clients").await < 2 {}
    drop(owner);
    tokio::join!(door.gateway.shutdown(), stopped.expect_end());
}

#[tokio::test]
async fn a_client_too_many_is_told_so_over_tls() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let door = Door::start_with(&url, Share::Auto, |config, _| config.limits.clients = 1).await;
    let mut first = door.client().await;
    assert_eq!(first.say("PING").await, "PONG");
    let mut other = door.client().await;
    assert_eq!(text(&other.reply().await), "-ERR max number of clients reached");
    let end = async {
        let mut rest = Vec::new();
        other.stream.shutdown().await.unwrap();
        other.stream.read_to_end(&mut rest).await
    };
    assert_eq!(in_time(end).await.expect("an end, not a cut"), 0);
    let mut silent = RawClient::new(TcpStream::connect(door.tcp).await.unwrap());
    silent.expect_end().await;
    assert_eq!(first.say("PING").await, "PONG");
}

/// Some of them never begin their handshake, and none ends its side.
#[tokio::test]
async fn many_clients_too_many_are_told_so_over_tls_beside_silent_ones() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let door = Door::start_with(&url, Share::Auto, |config, _| config.limits.clients = 1).await;
    let mut first = door.client().await;
    assert_eq!(first.say("PING").await, "PONG");
    let mut kept = Vec::new();
    for _ in 0..20 {
        kept.push(RawClient::new(TcpStream::connect(door.tcp).await.unwrap()));
        let mut other = door.client().await;
        assert_eq!(text(&other.reply().await), "-ERR max number of clients reached");
        kept.push(other);
    }
    assert_eq!(first.info("gateway_clients_refused").await, 40);
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("in time")
}
