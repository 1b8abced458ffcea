//! Nodes of another cluster, at addresses that nodes of this one had.

use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::timeout;
use valkey_rdma_client::cluster::Route;
use valkey_rdma_client::{Client, Config, ConnectCause, Error};
use valkey_rdma_mock::{DeviceKind, Mock, MockCluster, Server, TransportConfig};
use valkey_rdma_resp::Reply;

use crate::target::{PATIENCE, client_of, read_again, unhurried, watchful};

/// Kills a node. Another cluster of one node, with all slots and a later epoch, begins at its address.
async fn take_over(mocks: &MockCluster, node: usize) -> MockCluster {
    mocks.kill(node).await;
    let address = mocks.announced(node);
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let other = MockCluster::builder(1).first_port(port).start().await.expect("its port is free");
    other.answer(0, "cluster|info", Some(Reply::bulk("cluster_current_epoch:21\r\n")));
    other
}

/// Reads the map all the time.
fn curious() -> Config {
    watchful().refresh_interval(Duration::from_millis(20))
}

/// As `curious`. Commands soon give up.
fn hurried() -> Config {
    curious().offline_timeout(Duration::from_millis(300))
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

/// The client connects to all seeds before it knows the nodes.
#[tokio::test]
async fn a_seed_that_is_another_clusters_gets_no_command_of_the_dead_node_whose_address_it_has() {
    let (mocks, keys) = cluster().await;
    let other = take_over(&mocks, 0).await;
    // On a busy machine, only the other cluster may have answered in time.
    let client = loop {
        let client = client_of(&mocks, &hurried()).await;
        if nodes(&client) == 3 {
            break client;
        }
    };
    meets_stranger(&client, &keys[0]).await;
    assert_eq!(other.calls(0, "set"), 0);
}

/// A program may give the same settings to all of its clients.
#[tokio::test]
async fn clients_with_the_same_settings_compare_with_the_nodes_of_their_own_cluster_only() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let single = Server::builder(Mock::new()).rdma(DeviceKind::Emulated, any, &TransportConfig::default());
    let single = single.start().await.expect("a free port");
    let url = format!("{}?timeout={}s", single.urls().next().expect("as built"), PATIENCE.as_secs());
    let ((one, ones), (other, others)) = (cluster().await, cluster().await);
    let config = unhurried();
    let clients = [
        (client_of(&one, &config).await, &*ones[0]),
        (client_of(&other, &config).await, &*others[0]),
        (Client::connect_with(url, &config).await.expect("connected"), "list"),
    ];
    for (client, list) in clients {
        client.command(["RPUSH", list, "job"]).await.expect("pushed");
        client.blocking_command(["BLPOP", list, "0"]).await.expect("popped, on a new connection");
    }
}

/// It is new, or was drained: the map does not have it.
#[tokio::test]
async fn a_seed_without_slots_gets_the_commands_that_ask_sends_there() {
    let (mocks, keys) = cluster().await;
    let client = client_of(&mocks, &curious()).await;
    write(&client, &keys).await;
    for slots in mocks.slots_of(1) {
        mocks.move_slots(slots, 0);
    }
    let drained = async {
        while nodes(&client) > 2 {
            yield_now().await;
        }
    };
    timeout(PATIENCE, drained).await.expect("it reads the map");
    let slot = MockCluster::slot(&keys[0]);
    mocks.begin_migration(slot..=slot, 1);
    mocks.move_keys(slot, 1);
    let value = client.command(["GET", &keys[0]]).await.expect("followed");
    assert_eq!(value.as_str(), Some("x"));
}

/// As where nodes have names that stay. The connection to the former one may live on.
#[tokio::test]
async fn a_node_is_connected_to_anew_when_another_has_its_address() {
    let (mocks, keys) = cluster().await;
    let client = client_of(&mocks, &curious()).await;
    write(&client, &keys).await;
    let ids = ["0".repeat(40), mocks.id(1), mocks.id(2)];
    let range = |at: usize| {
        let (slots, address) = (mocks.slots_of(at).remove(0), mocks.announced(at));
        let (host, port) = address.rsplit_once(':').expect("an address");
        let (host, id) = (Reply::bulk(host.to_owned()), Reply::bulk(ids[at].clone()));
        let node = Reply::Array(vec![host, Reply::Integer(port.parse().expect("a port")), id]);
        let slot = |slot: u16| Reply::Integer(slot.into());
        Reply::Array(vec![slot(*slots.start()), slot(*slots.end()), node])
    };
    let slots = Reply::Array((0..3).map(range).collect());
    let logins = mocks.calls(0, "hello");
    mocks.answer(0, "cluster|myid", Some(Reply::bulk(ids[0].clone())));
    for node in 0..3 {
        mocks.answer(node, "cluster|slots", Some(slots.clone()));
    }
    let anew = async {
        while mocks.calls(0, "hello") == logins {
            client.command(["GET", &keys[0]]).await.expect("one of both answers");
        }
    };
    timeout(PATIENCE, anew).await.expect("the other one is logged in to");
}

/// As Valkey 7.2 answers until it has its data. Then it would take commands.
const LOADING: &str = "LOADING Valkey is loading the dataset in memory";

#[tokio::test]
async fn a_server_that_does_not_say_its_id_while_it_loads_gets_no_command() {
    let (mocks, keys) = cluster().await;
    let client = client_of(&mocks, &hurried()).await;
    write(&client, &keys).await;
    let other = take_over(&mocks, 0).await;
    other.answer(0, "cluster|myid", Some(Reply::error(LOADING)));
    let is_loading = |error: &Error| error.server().is_some_and(|error| error.code == "LOADING");
    let asked =
        async { while !is_loading(&client.command(["SET", &keys[0], "y"]).await.expect_err("dead")) {} };
    timeout(PATIENCE, asked).await.expect("it says that it loads");
    assert_eq!(other.calls(0, "set"), 0);
}

/// As for one that is connected.
#[tokio::test]
async fn commands_wait_for_a_node_that_does_not_say_its_id_while_it_loads() {
    let (mocks, keys) = cluster().await;
    let client = client_of(&mocks, &watchful()).await;
    write(&client, &keys).await;
    mocks.answer(0, "cluster|myid", Some(Reply::error(LOADING)));
    mocks.disconnect(0).await;
    let logins = mocks.calls(0, "hello");
    let status = client.cluster().expect("a cluster").status();
    let node = status.nodes.iter().find(|node| node.address.to_string() == mocks.announced(0));
    let node = Route::Node(node.expect("in the map").address.clone());
    let waits = tokio::spawn({
        let (client, key) = (client.clone(), keys[0].clone());
        async move {
            let named = client.cluster().expect("a cluster").command_on(node, ["PING"]);
            tokio::join!(client.command(["GET", &key]), named)
        }
    });
    while mocks.calls(0, "hello") < logins + 2 && !waits.is_finished() {
        yield_now().await;
    }
    mocks.answer(0, "cluster|myid", None);
    let (got, named) = waits.await.expect("no panic");
    assert_eq!(got.expect("it has its data").as_str(), Some("x"));
    named.expect("it has its data");
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
