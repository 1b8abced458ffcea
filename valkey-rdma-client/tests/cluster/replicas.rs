//! Reads from replicas.

use std::time::Duration;

use tokio::time::timeout;
use valkey_rdma_client::cluster::ReadFrom;
use valkey_rdma_client::{Backoff, Client, Config};
use valkey_rdma_mock::MockCluster;
use valkey_rdma_resp::Reply;

use crate::target::{PATIENCE, client_of, mocks, unhurried};

fn from(strategy: ReadFrom) -> Config {
    unhurried().read_from(strategy)
}

/// How many of ten reads of a key of node 0 each node got.
async fn reads(mocks: &MockCluster, strategy: ReadFrom) -> Vec<u64> {
    let before: Vec<_> = (0..mocks.len()).map(|node| mocks.calls(node, "get")).collect();
    let cluster = client_of(mocks, &from(strategy)).await;
    let key = mocks.key_of(0, 0);
    cluster.command(["SET", &key, "x"]).await.expect("set");
    for _ in 0..10 {
        assert_eq!(cluster.command(["GET", &key]).await.expect("got").as_str(), Some("x"));
    }
    (0..mocks.len()).map(|node| mocks.calls(node, "get") - before[node]).collect()
}

#[tokio::test]
async fn reads_go_where_the_strategy_says_and_writes_to_primaries() {
    let mocks = mocks().await;
    assert_eq!(reads(&mocks, ReadFrom::Primary).await, [10, 0, 0, 0, 0, 0]);
    assert_eq!(reads(&mocks, ReadFrom::PreferReplica).await, [0, 0, 0, 10, 0, 0]);
    assert_eq!(reads(&mocks, ReadFrom::RoundRobin).await, [5, 0, 0, 5, 0, 0]);
    assert_eq!(reads(&mocks, ReadFrom::custom(|nodes| nodes.len() - 1)).await, [0, 0, 0, 10, 0, 0]);
    assert_eq!(mocks.calls(3, "set"), 0);
}

#[tokio::test]
async fn a_replica_in_the_same_zone_is_preferred() {
    let mocks = MockCluster::builder(1).replicas(2).zones(["a", "b", "c"]).start().await.expect("free ports");
    for (zone, node) in [("b", 1), ("c", 2), ("a", 0)] {
        let reads = reads(&mocks, ReadFrom::Zone(zone.to_owned())).await;
        assert_eq!(reads[node], 10, "zone {zone}: {reads:?}");
    }
}

#[tokio::test]
async fn a_replica_that_fails_is_passed_over() {
    let mocks = mocks().await;
    mocks.kill(3).await;
    assert_eq!(reads(&mocks, ReadFrom::PreferReplica).await[0], 10);
}

/// A client that reads from replicas, and tries a failed one again soon.
async fn reader_of(mocks: &MockCluster) -> Client {
    let soon = Backoff::default().first(Duration::from_millis(2)).max(Duration::from_millis(2));
    // No new map helps: only reads do.
    let config = from(ReadFrom::PreferReplica).reconnect(soon).refresh_interval(None);
    client_of(mocks, &config).await
}

/// Reads a key of node 0 until its replica, node 3, has answered once more.
async fn read_until_the_replica_answers(mocks: &MockCluster, cluster: &Client) {
    let key = mocks.key_of(0, 0);
    let before = mocks.calls(3, "get");
    let read = async {
        while mocks.calls(3, "get") == before {
            cluster.command(["GET", &key]).await.expect("a node answers");
        }
    };
    timeout(PATIENCE, read).await.expect("the replica is read");
}

#[tokio::test]
async fn a_replica_that_was_not_ready_is_read_again() {
    let mocks = mocks().await;
    let cluster = reader_of(&mocks).await;
    read_until_the_replica_answers(&mocks, &cluster).await;
    mocks.answer_keyed_next(3, [Reply::error("MASTERDOWN wait")]);
    cluster.command(["GET", &mocks.key_of(0, 0)]).await.expect("the primary answers");
    read_until_the_replica_answers(&mocks, &cluster).await;
}

#[tokio::test]
async fn a_replica_that_was_dead_is_read_again() {
    let mocks = mocks().await;
    let cluster = reader_of(&mocks).await;
    read_until_the_replica_answers(&mocks, &cluster).await;
    mocks.kill(3).await;
    // The first meets the lost connection, the second none.
    for _ in 0..2 {
        cluster.command(["GET", &mocks.key_of(0, 0)]).await.expect("the primary answers");
    }
    mocks.restart(3).await.expect("its ports are free");
    read_until_the_replica_answers(&mocks, &cluster).await;
}

/// Replicas without READONLY answer reads with MOVED.
#[tokio::test]
async fn a_user_who_may_not_run_readonly_reads_from_primaries() {
    let mocks = MockCluster::builder(1).replicas(2).zones(["a", "b", "b"]).start().await.expect("free ports");
    for node in 0..mocks.len() {
        mocks.answer(node, "READONLY", Some(Reply::error(NOPERM)));
    }
    let last = || ReadFrom::custom(|nodes| nodes.len() - 1);
    for strategy in [ReadFrom::PreferReplica, ReadFrom::RoundRobin, ReadFrom::Zone("b".to_owned()), last()] {
        let cluster = client_of(&mocks, &from(strategy.clone())).await;
        let key = mocks.key_of(0, 0);
        cluster.command(["SET", &key, "x"]).await.expect("set");
        let before = mocks.calls(0, "get");
        for _ in 0..10 {
            assert_eq!(cluster.command(["GET", &key]).await.expect("got").as_str(), Some("x"));
        }
        assert_eq!(mocks.calls(0, "get") - before, 10, "{strategy:?}");
        // A replica that is not connected yet is not known to redirect.
        let moved = cluster.cluster().expect("a cluster").status().counters.moved;
        assert!(moved <= 2, "{strategy:?}: {moved} redirections");
    }
}

#[tokio::test]
async fn a_replica_that_lets_the_user_run_readonly_is_read_although_another_does_not() {
    let mocks = MockCluster::builder(1).replicas(2).start().await.expect("free ports");
    for node in [0, 1] {
        mocks.answer(node, "READONLY", Some(Reply::error(NOPERM)));
    }
    let reads = reads(&mocks, ReadFrom::PreferReplica).await;
    assert_eq!(reads[0] + reads[2], 10, "{reads:?}");
    assert!(reads[2] >= 9, "{reads:?}");
}

#[tokio::test]
async fn another_refusal_of_readonly_ends_the_connection() {
    let mocks = mocks().await;
    for node in 0..mocks.len() {
        mocks.answer(node, "READONLY", Some(Reply::error("ERR out of order")));
    }
    let error = Client::connect_with(mocks.urls(), &from(ReadFrom::PreferReplica)).await;
    let error = error.expect_err("refused");
    assert!(format!("{error:#}").contains("out of order"), "{error:#}");
}

const NOPERM: &str = "NOPERM User app has no permissions to run the 'readonly' command";
