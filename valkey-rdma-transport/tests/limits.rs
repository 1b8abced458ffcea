//! What a listener allows all of its connections together. Runs on the device that `VALKEY_RDMA_TEST_DEVICE` names,
//! as `stream.rs` does.

use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_transport::{Config, DeviceKind, Listener, Stream, TransportError};

fn device() -> DeviceKind {
    let name = std::env::var("VALKEY_RDMA_TEST_DEVICE").unwrap_or_else(|_| "emulated".to_owned());
    name.parse().expect("VALKEY_RDMA_TEST_DEVICE names a device")
}

fn any_port() -> SocketAddr {
    let host = std::env::var("VALKEY_RDMA_TEST_ADDR").unwrap_or_else(|_| "127.0.0.1".to_owned());
    SocketAddr::new(host.parse::<IpAddr>().expect("VALKEY_RDMA_TEST_ADDR is an IP address"), 0)
}

async fn listen(config: &Config) -> Listener {
    Listener::bind(device(), any_port(), config).await.expect("listens")
}

/// A connection, while the listener is asked for one.
async fn connected(listener: &mut Listener) -> (Stream, Stream) {
    let addr = listener.local_addr();
    let config = Config::default();
    let (client, server) = tokio::join!(Stream::connect(device(), addr, &config), listener.accept());
    (client.expect("connects"), server.expect("accepts"))
}

/// The error of a connect, while the listener is asked for a connection that it does not get.
async fn rejection(listener: &mut Listener) -> TransportError {
    let addr = listener.local_addr();
    let config = Config::default();
    let connecting = Stream::connect(device(), addr, &config);
    tokio::select! {
        outcome = connecting => outcome.expect_err("there is no room"),
        _ = listener.accept() => panic!("accepted beyond the limit"),
    }
}

/// Waits until the other connections' places are free.
async fn until_connections(listener: &Listener, count: usize) {
    while listener.stats().connections != count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_request_beyond_the_connections_allowed_is_rejected_and_counted() {
    let mut listener = listen(Config::default().max_connections(Some(2))).await;
    let first = connected(&mut listener).await;
    let second = connected(&mut listener).await;
    for _ in 0..3 {
        let error = rejection(&mut listener).await;
        let addr = listener.local_addr();
        assert!(matches!(error, TransportError::Rejected { peer, .. } if peer == addr), "{error:?}");
    }
    let stats = listener.stats();
    assert_eq!((stats.accepted, stats.refused_connections, stats.connections), (2, 3, 2));
    drop(first);
    until_connections(&listener, 1).await;
    drop(connected(&mut listener).await);
    drop(second);
    until_connections(&listener, 0).await;
    let stats = listener.stats();
    assert_eq!((stats.accepted, stats.refused_connections, stats.pinned_bytes), (3, 3, 0));
}

#[tokio::test]
async fn memory_beyond_the_bytes_allowed_is_not_pinned() {
    let mut config = Config::default();
    config.rx_size(1 << 16).send_buffer(1 << 16);
    let one = config.pinned_bytes();
    assert_eq!(one, 3 * (1 << 16) + 33_280);
    let mut listener = listen(config.max_pinned_bytes(Some(2 * one - 1))).await;
    let (client, server) = connected(&mut listener).await;
    assert_eq!(server.stats().pinned_bytes, one, "what is counted is what is pinned");
    let error = rejection(&mut listener).await;
    assert!(matches!(error, TransportError::Rejected { .. }), "{error:?}");
    let stats = listener.stats();
    assert_eq!((stats.refused_memory, stats.refused_connections, stats.pinned_bytes), (1, 0, one));
    drop((client, server));
    until_connections(&listener, 0).await;
    drop(connected(&mut listener).await);
}

#[tokio::test]
async fn a_request_waits_for_a_decision_that_may_depend_on_who_asks() {
    let mut listener = listen(&Config::default()).await;
    let addr = listener.local_addr();
    let config = Config::default();
    let (refused, peer) = tokio::join!(Stream::connect(device(), addr, &config), async {
        let request = listener.request().await.expect("a request");
        assert_eq!(listener.stats().connections, 1, "its place is kept");
        request.peer_addr()
    });
    let error = refused.expect_err("dropped");
    assert!(matches!(error, TransportError::Rejected { .. }), "{error:?}");
    assert_eq!(peer.ip(), any_port().ip());
    assert_eq!(listener.stats().connections, 0);
    let (client, server) = tokio::join!(Stream::connect(device(), addr, &config), async {
        listener.request().await.expect("a request").accept().expect("a stream")
    });
    let (mut client, mut server) = (client.expect("connects"), server);
    client.write_all(b"x").await.expect("writes");
    assert_eq!(server.read_u8().await.expect("reads"), b'x');
}
