//! The end of a client: what waits ends, and nothing begins any more.

use std::time::Duration;

use tokio::time::timeout;
use valkey_rdma_client::{Backoff, Error};
use valkey_rdma_mock::MockCluster;
use valkey_rdma_resp::Reply;

use crate::target::{PATIENCE, advance, client_of, in_flight, mocks, read_again, unhurried, watchful};

/// Commands without a limit: one that goes on waiting does not return.
#[tokio::test]
async fn a_command_that_waits_for_a_node_ends_with_the_client_and_no_attempt_to_connect_follows() {
    let mocks = mocks().await;
    let wait = Duration::from_secs(24 * 3600);
    let config = watchful().command_timeout(None).offline_timeout(None);
    let cluster = client_of(&mocks, &config.reconnect(Backoff::default().first(wait).max(wait))).await;
    let key = mocks.key_of(0, 0);
    cluster.command(["GET", &key]).await.expect("a reply");
    mocks.kill(0).await;
    let waits = tokio::spawn({
        let (cluster, key) = (cluster.clone(), key.clone());
        async move { cluster.command(["GET", &key]).await }
    });
    // It asks for the map for as long as it waits.
    read_again(&cluster, 3).await;
    cluster.close().await;
    let ended = timeout(PATIENCE, waits).await.expect("no hang").expect("no panic");
    assert!(matches!(ended, Err(Error::Lost(_))), "{ended:?}");

    mocks.restart(0).await.expect("its port is free");
    advance(wait, 2).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(mocks.connections(0).await, 0);
}

#[tokio::test]
async fn a_closed_client_does_not_read_the_map_any_more() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &watchful().refresh_interval(Duration::from_millis(20))).await;
    cluster.close().await;
    let refreshes = || cluster.cluster().expect("a cluster").status().counters.refreshes;
    let mut seen = Vec::new();
    for _ in 0..2 {
        // One that has begun may still count.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        seen.push(refreshes());
        advance(Duration::from_secs(1), 10).await;
    }
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test]
async fn a_command_that_is_redirected_after_the_end_of_the_client_opens_no_connection() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried().refresh_interval(None)).await;
    let key = mocks.key_of(0, 0);
    cluster.command(["SET", &key, "1"]).await.expect("set");
    // Another name of a node: the client does not know it.
    let known = mocks.announced(1);
    let (_, port) = known.rsplit_once(':').expect("a port");
    mocks.answer_next(
        0,
        "get",
        [Reply::error(format!("MOVED {} localhost:{port}", MockCluster::slot(&key)))],
    );
    mocks.freeze(0);
    let get = tokio::spawn({
        let (cluster, key) = (cluster.clone(), key.clone());
        async move { cluster.command(["GET", &key]).await }
    });
    in_flight(&cluster, 1).await;
    let close = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.close().await }
    });
    while !cluster.is_closed() {
        tokio::task::yield_now().await;
    }
    mocks.thaw(0);
    get.await.expect("no panic").expect_err("the client is closed");
    close.await.expect("no panic");
}
