//! Nodes of another cluster, at addresses that nodes of this one had.

use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::timeout;
use valkey_rdma_client::{Client, Config, ConnectCause, Error};
use valkey_rdma_mock::MockCluster;
use valkey_rdma_resp::Reply;

use crate::target::{PATIENCE, client_of, read_again, watchful};

/// Kills a node. Another cluster of one node, with all slots and a later epoch, begins at its address.
async fn take_over(mocks: &MockCluster, node: usize) -> MockCluster {
    mocks.kill(node).await;
    let address = mocks.announced(node);
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let other = MockCluster::builder(1).first_port(port).start().await.expect("its port is free");
    other.answer(0, "cluster|info", Some(Reply::bulk("cluster_current_epoch:21\r\n")));
    other
}

/// Reads the map all the time. Commands soon give up.
fn hurried() -> Config {
    watchful().refresh_interval(Duration::from_millis(20)).offline_timeout(Duration::from_millis(300))
}

/// Three primaries with a key each.
async fn cluster() -> (MockCluster, [String; 3]) {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let keys = [0, 1, 2].map(|node| mocks.key_of(node, 0));
    (mocks, keys)
}

/// Writes the keys, however long it takes to connect.
async fn write(client: &Client, keys: &[String]) {
    for key in keys {
        while client.command(["SET", key, "x"]).await.is_err() {}
    }
}

/// True if a server was not used because it is a node of another cluster.
fn is_refusal(error: &Error) -> bool {
    match error {
        Error::Connect(error) => matches!(error.cause(), ConnectCause::AnotherCluster { .. }),
        _ => false,
    }
}

/// Tries to write this key until the client meets the node of another cluster.
async fn meets_stranger(client: &Client, key: &str) {
    // The first ones meet the lost connection.
    let meets = async { while !is_refusal(&client.command(["SET", key, "y"]).await.expect_err("dead")) {} };
    timeout(PATIENCE, meets).await.expect("it finds another node");
}

fn nodes(client: &Client) -> usize {
    client.cluster().expect("a cluster").status().nodes.len()
}

/// As a network of containers gives addresses away.
#[tokio::test]
async fn a_node_of_another_cluster_gets_no_command_of_the_dead_node_whose_address_it_has() {
    let (mocks, keys) = cluster().await;
    let client = client_of(&mocks, &hurried()).await;
    write(&client, &keys).await;
    let other = take_over(&mocks, 0).await;
    meets_stranger(&client, &keys[0]).await;
    read_again(&client, 3).await;
    for key in &keys[1..] {
        let value = client.command(["GET", key]).await.expect("its node lives");
        assert_eq!(value.as_str(), Some("x"));
    }
    assert_eq!((other.calls(0, "set"), nodes(&client)), (0, 3));
}

/// The shared connection to the old node may still look alive.
#[tokio::test]
async fn connections_beside_the_shared_one_reach_no_node_of_another_cluster_either() {
    let (mocks, keys) = cluster().await;
    let client = client_of(&mocks, &hurried()).await;
    write(&client, &keys).await;
    mocks.answer(0, "cluster|myid", Some(Reply::bulk("0".repeat(40))));
    let error = client.blocking_command(["BLPOP", &keys[0], "0"]).await.expect_err("another node");
    assert!(is_refusal(&error), "{error:?}");
    assert_eq!(mocks.calls(0, "blpop"), 0);
}

/// Then the client cannot compare the server that it reaches.
#[tokio::test]
async fn a_user_who_may_not_ask_for_ids_keeps_the_map_of_the_nodes_that_answer() {
    let (mocks, keys) = cluster().await;
    for node in 0..3 {
        mocks.answer(node, "cluster|myid", Some(Reply::error("NOPERM no ids")));
    }
    let client = client_of(&mocks, &hurried()).await;
    write(&client, &keys).await;
    let other = take_over(&mocks, 0).await;
    let asked = async {
        while other.calls(0, "cluster|slots") < 3 {
            yield_now().await;
        }
    };
    timeout(PATIENCE, asked).await.expect("it is asked for the map");
    read_again(&client, 1).await;
    assert_eq!(nodes(&client), 3);
    for key in &keys[1..] {
        let value = client.command(["GET", key]).await.expect("its node lives");
        assert_eq!(value.as_str(), Some("x"));
    }
}

/// All nodes were replaced, and lost what they knew.
#[tokio::test]
async fn a_new_cluster_at_a_seed_is_followed_when_no_node_of_the_old_one_answers() {
    let (mocks, keys) = cluster().await;
    let client = client_of(&mocks, &hurried()).await;
    write(&client, &keys).await;
    let other = take_over(&mocks, 0).await;
    mocks.kill(1).await;
    mocks.kill(2).await;
    timeout(PATIENCE, write(&client, &keys)).await.expect("the new cluster has all slots");
    assert_eq!((other.calls(0, "set"), nodes(&client)), (3, 1));
}

/// The nodes of the cluster may only be down.
#[tokio::test]
async fn another_cluster_at_an_address_that_the_program_has_not_named_is_never_followed() {
    let (mocks, keys) = cluster().await;
    let seed = format!("{}?timeout={}s", mocks.url(1), PATIENCE.as_secs());
    let client = Client::connect_with([seed], &hurried()).await.expect("connected");
    write(&client, &keys).await;
    let other = take_over(&mocks, 0).await;
    mocks.kill(1).await;
    mocks.kill(2).await;
    meets_stranger(&client, &keys[0]).await;
    read_again(&client, 3).await;
    assert_eq!(nodes(&client), 3);
    mocks.restart(1).await.expect("its port is free");
    timeout(PATIENCE, write(&client, &keys[1..2])).await.expect("it is back");
    assert_eq!((other.calls(0, "set"), nodes(&client)), (0, 3));
}
