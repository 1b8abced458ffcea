//! What a cluster client reports of its connections.

use tokio::time::timeout;
use valkey_rdma_client::{Client, Command, ConnectionEvent, ConnectionEvents};
use valkey_rdma_mock::{DeviceKind, MockCluster, Transports};

use crate::target::{PATIENCE, client_of, mocks, unhurried};

/// The next event of this node, as a word. Those of others are left out.
async fn next(events: &mut ConnectionEvents, node: &str) -> &'static str {
    let found = async {
        loop {
            let event = events.next().await.expect("not the end");
            let (of, word) = match &event {
                ConnectionEvent::Connected { node, .. } => (node, "connected"),
                ConnectionEvent::FellBack { node, .. } => (node, "fell back"),
                ConnectionEvent::Lost { node, .. } => (node, "lost"),
                ConnectionEvent::ConnectFailed { node, .. } => (node, "failed"),
                ConnectionEvent::Closed { node, .. } => (node, "closed"),
                other => panic!("{other}"),
            };
            let of = of.as_ref().expect("a node of a cluster");
            assert!(event.to_string().starts_with(&format!("{of}: ")), "{event}");
            if of.to_string() == node {
                return word;
            }
        }
    };
    timeout(PATIENCE, found).await.expect("an event")
}

/// A router that follows the cluster needs not ask again and again.
#[tokio::test]
async fn a_failover_is_reported_with_the_primaries_and_a_slot_that_moves_is_not() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let mut events = cluster.events();
    let key = mocks.key_of(0, 0);
    let (slot, theirs) = (MockCluster::slot(&key), mocks.key_of(2, 0));
    mocks.begin_migration(slot..=slot, 1);
    mocks.finish_migration(slot..=slot);
    cluster.command(["SET", &key, "x"]).await.expect("behind MOVED");
    mocks.kill(2).await;
    mocks.fail_over(5);
    let mut expected = [0, 1, 5].map(|node| mocks.announced(node));
    expected.sort();
    let write = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.command(Command::new("SET").arg(theirs).arg("x").idempotent()).await }
    });
    let reported = async {
        loop {
            let event = events.next().await.expect("not the end");
            if let ConnectionEvent::PrimariesChanged { primaries } = &event {
                let text = event.to_string();
                return (primaries.iter().map(ToString::to_string).collect::<Vec<_>>(), text);
            }
        }
    };
    let (mut primaries, text) = timeout(PATIENCE, reported).await.expect("an event");
    assert!(text.starts_with("primaries: ") && text.ends_with(primaries.last().expect("three")), "{text}");
    primaries.sort();
    assert_eq!(primaries, expected);
    write.await.expect("no panic").expect("its node was replaced");
}

/// Gives each primary a connection.
async fn touch(cluster: &Client, mocks: &MockCluster) {
    for node in 0..3 {
        cluster.command(["SET", &mocks.key_of(node, 0), "x"]).await.expect("set");
    }
}

#[tokio::test]
async fn a_node_that_dies_and_returns_is_reported_and_the_others_are_not() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let cluster = client_of(&mocks, &unhurried()).await;
    touch(&cluster, &mocks).await;
    let (node, other) = (mocks.announced(1), mocks.announced(2));
    let (mut events, mut others) = (cluster.events(), cluster.events());
    assert_eq!(next(&mut events, &node).await, "connected", "it was when listening began");
    assert_eq!(next(&mut others, &other).await, "connected");

    mocks.kill(1).await;
    assert_eq!(next(&mut events, &node).await, "lost");
    let waits = tokio::spawn({
        let (cluster, key) = (cluster.clone(), mocks.key_of(1, 0));
        async move { cluster.command(["GET", &key]).await }
    });
    assert_eq!(next(&mut events, &node).await, "failed");
    mocks.restart(1).await.expect("its ports are free");
    waits.await.expect("no panic").expect("the node is back");
    let mut word = next(&mut events, &node).await;
    while word == "failed" {
        word = next(&mut events, &node).await;
    }
    assert_eq!(word, "connected");

    cluster.close().await;
    assert_eq!(next(&mut events, &node).await, "closed");
    assert_eq!(next(&mut others, &other).await, "closed", "nothing in between");
    while let Some(event) = events.next().await {
        assert!(matches!(event, ConnectionEvent::Closed { .. }), "{event}");
    }
    let mut late = cluster.events();
    assert!(late.next().await.is_none(), "listening later ends at once");
}

#[tokio::test]
async fn a_connection_is_reported_when_a_command_makes_it() {
    let mocks = mocks().await;
    let cluster = Client::connect([mocks.url(0)]).await.expect("connected");
    let mut events = cluster.events();
    assert_eq!(next(&mut events, &mocks.announced(0)).await, "connected");
    cluster.command(["GET", &mocks.key_of(1, 0)]).await.expect("a reply");
    assert_eq!(next(&mut events, &mocks.announced(1)).await, "connected");
}

#[tokio::test]
async fn a_node_that_is_reached_over_tcp_only_is_reported_with_the_reason() {
    let builder = MockCluster::builder(3).transports(Transports::Both(DeviceKind::Emulated));
    let mocks = builder.start().await.expect("free ports");
    mocks.close_rdma(1).await;
    let seed = format!("{}?rdma_port=+1&fallback=tcp", mocks.url(0));
    let cluster = Client::connect([seed]).await.expect("connected");
    let mut events = cluster.events();
    touch(&cluster, &mocks).await;
    assert_eq!(next(&mut events, &mocks.announced(1)).await, "connected");
    assert_eq!(next(&mut events, &mocks.announced(1)).await, "fell back");
}

#[tokio::test]
async fn events_end_with_the_last_clone_of_the_client() {
    let mocks = mocks().await;
    let config = unhurried().connections(2);
    let cluster = client_of(&mocks, &config).await;
    touch(&cluster, &mocks).await;
    let mut events = cluster.events();
    drop(cluster);
    let mut closed = Vec::new();
    while let Some(event) = timeout(PATIENCE, events.next()).await.expect("ends") {
        if let ConnectionEvent::Closed { node: Some(node), connection, .. } = event {
            closed.push((node.to_string(), connection));
        }
    }
    for node in 0..3 {
        for connection in 0..2 {
            assert!(closed.contains(&(mocks.announced(node), connection)), "{closed:?}");
        }
    }
}
