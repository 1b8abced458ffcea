//! SCAN over all nodes; HSCAN, SSCAN and ZSCAN of keys that move.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, TryStreamExt};
use tokio::time::timeout;
use valkey_rdma_client::cluster::NodeStatus;
use valkey_rdma_client::{Client, Command, Config, Fate};
use valkey_rdma_mock::MockCluster;
use valkey_rdma_resp::Reply;

use crate::target::{PATIENCE, client_of, mocks, target, unhurried};

#[tokio::test]
async fn a_scan_returns_every_key_of_every_node() {
    let target = target().await;
    let cluster = target.client().await;
    let keys: BTreeSet<_> = (0..500).map(|number| target.key(&number.to_string())).collect();
    let mut pipeline = cluster.pipeline();
    for key in &keys {
        pipeline.push(Command::from_args(["SET", key, "x"]));
    }
    assert!(pipeline.send().await.expect("sent").iter().all(Result::is_ok));
    let streamed: Vec<_> =
        cluster.scan().matching(target.key("*")).keys().try_collect().await.expect("all keys");
    let streamed: BTreeSet<_> =
        streamed.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
    assert_eq!(streamed, keys);
    let mut scan = cluster.scan().matching(target.key("*")).count(50);
    let mut found = BTreeSet::new();
    while let Some(batch) = scan.next_batch().await.expect("a batch") {
        found.extend(batch.iter().map(|key| String::from_utf8_lossy(key).into_owned()));
    }
    assert_eq!(found, keys);
}

/// Gives node 0 more keys than it returns in one batch.
async fn fill_first_node(cluster: &Client, mocks: &MockCluster) -> BTreeSet<Bytes> {
    let keys: Vec<_> = (0..200).map(|number| mocks.key_of(0, number)).collect();
    let mut pipeline = cluster.pipeline();
    for key in &keys {
        pipeline.push(Command::from_args(["SET", key, "x"]));
    }
    assert!(pipeline.send().await.expect("sent").iter().all(Result::is_ok));
    keys.into_iter().map(Bytes::from).collect()
}

/// More than a node returns in one batch.
const MEMBERS: usize = 600;

async fn fill(cluster: &Client, key: &str) -> BTreeSet<Bytes> {
    let members: Vec<_> = (0..MEMBERS).map(|number| format!("member {number}")).collect();
    let add = Command::new("SADD").arg(key);
    cluster.command(members.iter().fold(add, |add, member| add.arg(member))).await.expect("added");
    members.into_iter().map(Bytes::from).collect()
}

#[tokio::test]
async fn the_elements_of_a_key_are_scanned_on_its_node() {
    let target = target().await;
    let cluster = target.client().await;
    for tag in ["a", "b", "c", "d"] {
        let key = target.key(&format!("{{{tag}}}"));
        let members = fill(&cluster, &format!("{key}set")).await;
        let scanned: Vec<_> =
            cluster.scan_set(format!("{key}set")).elements().try_collect().await.expect("members");
        assert_eq!(BTreeSet::from_iter(scanned), members);
        cluster.command(["HSET", &format!("{key}hash"), "field", "value"]).await.expect("set");
        let fields: Vec<_> =
            cluster.scan_hash(format!("{key}hash")).elements().try_collect().await.expect("fields");
        assert_eq!(fields, [(Bytes::from("field"), Bytes::from("value"))]);
        cluster.command(["ZADD", &format!("{key}sorted"), "1.5", "member"]).await.expect("added");
        let scores: Vec<_> =
            cluster.scan_sorted_set(format!("{key}sorted")).elements().try_collect().await.expect("scores");
        assert_eq!(scores, [(Bytes::from("member"), 1.5)]);
    }
}

/// Scans a set whose key comes to another node after the first batch. The new node must see the whole scan: a cursor of the
/// old one may skip elements there.
async fn scan_while(moves: impl AsyncFnOnce(&MockCluster, u16)) {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let key = mocks.key_of(0, 0);
    let members = fill(&cluster, &key).await;
    let mut scan = cluster.scan_set(&key).count(50);
    let first = scan.next_batch().await.expect("a batch").expect("not the end");
    assert_eq!(first.len(), 50);
    moves(&mocks, MockCluster::slot(&key)).await;
    let mut rest = Vec::new();
    while let Some(batch) = scan.next_batch().await.expect("a batch") {
        rest.extend(batch);
    }
    assert_eq!(rest.len(), MEMBERS, "the scan began anew, once");
    assert_eq!(BTreeSet::from_iter(rest), members);
}

/// They bring mocks of their own: a real server beside them shows nothing.
mod mocks_only {
    use super::*;

    #[tokio::test]
    async fn a_scan_of_a_node_begins_anew_after_its_restart() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        let keys = fill_first_node(&cluster, &mocks).await;
        let mut scan = cluster.scan().count(50);
        assert_eq!(scan.next_batch().await.expect("a batch").expect("not the end").len(), 50);
        mocks.kill(0).await;
        mocks.restart(0).await.expect("its ports are free");
        // The new process may have other cursors.
        let rest: Vec<_> = scan.keys().try_collect().await.expect("all keys");
        assert_eq!(rest.len(), keys.len(), "the scan began anew, once");
        assert_eq!(BTreeSet::from_iter(rest), keys);
    }

    /// A server that closes idle connections, and a program that takes long for each batch.
    /// Its time limits are those of one command, not of each attempt.
    #[tokio::test]
    async fn a_scan_of_a_server_that_is_not_reached_fails_as_one_command_does() {
        let mocks = MockCluster::start(1).await.expect("free ports");
        let node = Config::default().command_timeout(None).offline_timeout(Duration::ZERO);
        let cluster = client_of(&mocks, &node).await;
        mocks.kill(0).await;
        let mut scan = cluster.scan();
        // The first one may find out that the connection is lost.
        while scan.next_batch().await.is_ok() {}
        let before = cluster.cluster().expect("a cluster").status().counters.lost;
        let error = scan.next_batch().await.expect_err("the server is gone");
        assert_eq!(error.fate(), Fate::NotSent, "{error}");
        assert_eq!(cluster.cluster().expect("a cluster").status().counters.lost - before, 1, "{error}");
    }

    #[tokio::test]
    async fn scans_whose_connections_do_not_last_end_with_an_error() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        fill_first_node(&cluster, &mocks).await;
        let key = mocks.key_of(0, 0);
        cluster.command(["DEL", &key]).await.expect("a reply");
        fill(&cluster, &key).await;
        let (mut scan, mut elements) = (cluster.scan().count(50), cluster.scan_set(&key).count(50));
        let (mut ended, mut rounds) = ([false; 2], 0);
        while ended != [true; 2] {
            assert!(rounds < 20, "{ended:?}");
            rounds += 1;
            let outcomes = [scan.next_batch().await.map(drop), elements.next_batch().await.map(drop)];
            for (ended, outcome) in ended.iter_mut().zip(outcomes) {
                if let Err(error) = outcome {
                    assert!(error.to_string().contains("began anew 8 times"), "{error}");
                    *ended = true;
                }
            }
            mocks.disconnect(0).await;
            let gone = async {
                while mocks.connections(0).await > 0 {
                    tokio::task::yield_now().await;
                }
            };
            timeout(PATIENCE, gone).await.expect("closed");
        }
        // Each can be taken up again.
        let keys: Vec<_> = scan.keys().try_collect().await.expect("all keys");
        assert!(!keys.is_empty());
    }

    /// The limit on readings of the map spares servers many clients; a scan needs one reading.
    #[tokio::test]
    async fn a_scan_does_not_wait_for_the_next_reading_of_the_map() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried().min_refresh_interval(PATIENCE)).await;
        let keys = fill_first_node(&cluster, &mocks).await;
        let scanned = timeout(PATIENCE / 4, cluster.scan().keys().try_collect::<BTreeSet<_>>()).await;
        assert_eq!(scanned.expect("does not wait").expect("all keys"), keys);
        assert_eq!(cluster.cluster().expect("a cluster").status().counters.refreshes, 1);
    }

    /// A primary that is cut off from the others believes that it still has its slots.
    #[tokio::test]
    async fn slots_that_a_node_has_lost_without_knowing_are_scanned_on_its_successor() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        let keys = fill_first_node(&cluster, &mocks).await;
        mocks.freeze_view(0);
        let mut scan = cluster.scan().count(1000);
        let mut found: BTreeSet<_> =
            scan.next_batch().await.expect("a batch").expect("node 0").into_iter().collect();
        mocks.fail_over(3);
        while let Some(batch) = scan.next_batch().await.expect("a batch") {
            found.extend(batch);
        }
        assert_eq!(found, keys);
        assert!(mocks.calls(3, "scan") > 0, "the successor was scanned");
    }

    /// It accepts connections, and answers nothing.
    #[tokio::test]
    async fn a_scan_does_not_wait_for_a_frozen_node_that_was_replaced() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        let keys = fill_first_node(&cluster, &mocks).await;
        let mut scan = cluster.scan().count(50);
        scan.next_batch().await.expect("a batch").expect("not the end");
        mocks.freeze(0);
        mocks.disconnect(0).await;
        let is_connected = |node: &NodeStatus| {
            node.address.to_string() == mocks.announced(0) && !node.connections.is_empty()
        };
        while cluster.cluster().expect("a cluster").status().nodes.iter().any(is_connected) {
            tokio::task::yield_now().await;
        }
        assert!(scan.next_batch().now_or_never().is_none(), "it waits for the node");
        mocks.fail_over(3);
        let rest = timeout(PATIENCE / 4, scan.keys().try_collect::<BTreeSet<_>>()).await;
        assert_eq!(rest.expect("does not wait").expect("all keys"), keys);
    }

    /// The node is asked at the end of its part.
    #[tokio::test]
    async fn a_scan_that_is_dropped_at_the_end_of_a_node_does_not_begin_anew() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried().min_refresh_interval(PATIENCE)).await;
        let keys = fill_first_node(&cluster, &mocks).await;
        let mut scan = cluster.scan().count(1000);
        let batch = timeout(PATIENCE / 4, scan.next_batch()).await.expect("does not wait for the map");
        assert_eq!(BTreeSet::from_iter(batch.expect("a batch").expect("not the end")), keys);
        for _ in 0..3 {
            assert!(scan.next_batch().now_or_never().is_none(), "the map is not read yet");
            tokio::task::yield_now().await;
        }
        cluster.command(["GET", &mocks.key_of(0, 0)]).await.expect("a reply");
        assert_eq!(mocks.calls(0, "scan"), 1);
    }

    /// The scanned node knows best what it has given away. The others may hear of it later.
    #[tokio::test]
    async fn a_slot_that_left_before_it_was_scanned_is_scanned_where_it_went() {
        let mocks = MockCluster::builder(2).replicas(2).start().await.expect("free ports");
        let cluster = client_of(&mocks, &unhurried()).await;
        let keys = [mocks.key_of(0, 0), mocks.key_of(1, 0)];
        for key in &keys {
            cluster.command(["SET", key, "x"]).await.expect("set");
        }
        let mut scan = cluster.scan();
        let mut found: BTreeSet<_> =
            scan.next_batch().await.expect("a batch").expect("node 0").into_iter().collect();
        let others = [0, 2, 3, 4, 5];
        others.iter().for_each(|node| mocks.freeze_view(*node));
        mocks.answer(1, "cluster|slots", Some(Reply::error("NOPERM not now")));
        let slot = MockCluster::slot(&keys[1]);
        mocks.move_slots(slot..=slot, 0);
        found.extend(scan.next_batch().await.expect("a batch").expect("node 1"));
        let error = scan.next_batch().await.expect_err("node 1 must be asked");
        assert!(error.server().is_some_and(|error| error.code == "NOPERM"), "{error}");
        mocks.answer(1, "cluster|slots", None);
        others.iter().for_each(|node| mocks.follow(*node));
        while let Some(batch) = scan.next_batch().await.expect("a batch") {
            found.extend(batch);
        }
        assert_eq!(found, keys.map(Bytes::from).into());
    }

    #[tokio::test]
    async fn a_scan_of_a_key_begins_anew_where_its_slot_has_moved() {
        scan_while(async |mocks, slot| mocks.move_slots(slot..=slot, 1)).await;
    }

    #[tokio::test]
    async fn a_scan_of_a_key_begins_anew_where_the_key_has_moved_before_its_slot() {
        let moves = async |mocks: &MockCluster, slot| {
            mocks.begin_migration(slot..=slot, 2);
            assert_eq!(mocks.move_keys(slot, 10), 1);
        };
        scan_while(moves).await;
    }

    #[tokio::test]
    async fn a_scan_of_a_key_begins_anew_after_a_restart() {
        let moves = async |mocks: &MockCluster, _| {
            mocks.kill(0).await;
            mocks.restart(0).await.expect("its ports are free");
        };
        scan_while(moves).await;
    }

    #[tokio::test]
    async fn a_scan_of_a_key_begins_anew_after_a_failover() {
        let moves = async |mocks: &MockCluster, _| {
            mocks.fail_over(3);
            mocks.kill(0).await;
        };
        scan_while(moves).await;
    }
}
