//! What a listener allows all of its connections together, and how it ends. See `stream_pair` for how a device is
//! chosen.

#![cfg(feature = "emulated")]

use std::time::Duration;

use stream_pair::{any_port, bounded, connect, device, listen, pattern};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_transport::{Config, Listener, Stream, TransportError};

mod stream_pair;

/// A connection, while the listener is asked for one.
async fn connected(listener: &mut Listener) -> (Stream, Stream) {
    connect(listener, &Config::default()).await
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
    let mut listener = listen(&Config::default().max_connections(2)).await;
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
    let config = Config::default().rx_size(1 << 16).send_buffer(1 << 16);
    let one = config.pinned_bytes();
    assert_eq!(one, 3 * (1 << 16) + 33_280);
    let mut listener = listen(&config.max_pinned_bytes(2 * one - 1)).await;
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

#[tokio::test]
async fn a_shutdown_waits_for_the_streams_and_lets_them_finish() {
    let mut listener = listen(&Config::default()).await;
    let (mut client, mut server) = connected(&mut listener).await;
    let addr = listener.local_addr();
    let shutdown = tokio::spawn(listener.shutdown(Duration::from_secs(3600)));
    // Sooner or later nobody listens any more; the stream has not noticed.
    loop {
        match Stream::connect(device(), addr, &Config::default()).await {
            Err(TransportError::Refused { .. }) => break,
            Err(TransportError::Rejected { .. }) => tokio::task::yield_now().await,
            other => panic!("a listener that shuts down accepts nobody: {other:?}"),
        }
    }
    assert!(!shutdown.is_finished(), "a stream is left");
    client.write_all(b"question").await.expect("writes");
    let mut question = [0; 8];
    server.read_exact(&mut question).await.expect("reads");
    server.write_all(b"answer").await.expect("writes");
    server.shutdown().await.expect("delivered");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.expect("reads");
    assert_eq!(answer, b"answer");
    drop(server);
    assert_eq!(bounded(shutdown).await.expect("joins"), 0);
}

#[tokio::test]
async fn a_shutdown_tells_how_many_streams_outlast_its_limit() {
    let mut listener = listen(&Config::default()).await;
    let first = connected(&mut listener).await;
    let (mut client, mut server) = connected(&mut listener).await;
    drop(first);
    until_connections(&listener, 1).await;
    assert_eq!(listener.shutdown(Duration::ZERO).await, 1);
    client.write_all(b"x").await.expect("writes");
    assert_eq!(server.read_u8().await.expect("reads"), b'x');
}

/// Requests keep coming while the listener goes. Each ends in a connection that works, or in an error; and those
/// accepted before carry every byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_closed_under_load_harms_no_accepted_connection() {
    const STREAMS: usize = 8;
    let small =
        Config::default().rx_size(1 << 16).send_buffer(1 << 16).connect_timeout(Duration::from_secs(30));
    let mut listener = listen(&small).await;
    let addr = listener.local_addr();
    let mut pairs = Vec::new();
    for seed in 0..STREAMS as u64 {
        let (mut client, mut server) = connect(&mut listener, &small).await;
        let sent = pattern(seed, 500_000);
        let expected = sent.clone();
        pairs.push(tokio::spawn(async move {
            client.write_all(&sent).await.expect("writes");
            client.shutdown().await.expect("delivered");
        }));
        pairs.push(tokio::spawn(async move {
            let mut received = Vec::new();
            server.read_to_end(&mut received).await.expect("end of file");
            assert!(received == expected, "stream {seed}");
        }));
    }
    let storm: Vec<_> = (0..16)
        .map(|_| {
            let small = small.clone();
            tokio::spawn(async move { Stream::connect(device(), addr, &small).await })
        })
        .collect();
    // Some are taken, the others are waiting or on their way.
    let mut taken = Vec::new();
    for _ in 0..4 {
        taken.push(bounded(listener.accept()).await.expect("accepts"));
    }
    let left = tokio::spawn(listener.shutdown(Duration::from_secs(60)));
    let mut connected = Vec::new();
    for outcome in storm {
        match bounded(outcome).await.expect("joins") {
            Ok(stream) => connected.push(stream),
            Err(TransportError::Rejected { .. } | TransportError::Refused { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(connected.len(), taken.len(), "whoever was accepted is connected, and nobody else");
    for pair in pairs {
        bounded(pair).await.expect("every byte arrived");
    }
    drop((connected, taken));
    assert_eq!(bounded(left).await.expect("joins"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_accepted_on_a_thread_for_blocking_work() {
    let mut listener = listen(&Config::default()).await;
    let addr = listener.local_addr();
    let connecting = tokio::spawn(async move { Stream::connect(device(), addr, &Config::default()).await });
    let request = bounded(listener.request()).await.expect("a request");
    let accepted = tokio::task::spawn_blocking(move || request.accept()).await.expect("no panic");
    let (mut server, mut client) =
        (accepted.expect("accepts"), bounded(connecting).await.expect("joins").expect("connects"));
    server.write_all(b"x").await.expect("writes");
    assert_eq!(bounded(client.read_u8()).await.expect("reads"), b'x');
}
