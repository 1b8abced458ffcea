//! redis-rs's own cluster client over our transport.

use std::time::Duration;

use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncCommands, ErrorKind};
use valkey_rdma_client::redis_cluster::{NodeConnection, NodeSettings, Rdma};
use valkey_rdma_client::{Endpoint, Error, Transport};
use valkey_rdma_mock::{DeviceKind, MockCluster, Transports};

use crate::target::{client_of, mocks, unhurried};

/// The emulated device, on the announced ports.
#[derive(Debug)]
enum Emulated {}

impl NodeSettings for Emulated {
    fn endpoint() -> Result<Endpoint, Error> {
        Ok("emulated://any".parse()?)
    }
}

/// The emulated device, where nodes announce their TCP ports only.
#[derive(Debug)]
enum PortAfterTcp {}

impl NodeSettings for PortAfterTcp {
    fn endpoint() -> Result<Endpoint, Error> {
        Ok("emulated://any?rdma_port=+1".parse()?)
    }
}

async fn connect<S: NodeSettings>(seeds: Vec<String>) -> ClusterConnection<NodeConnection<S>> {
    // Its default is one second for a connection, which a busy machine can take.
    let patient = ClusterClient::builder(seeds).connection_timeout(PATIENCE).response_timeout(PATIENCE);
    let client = patient.build().expect("good URLs");
    client.get_async_generic_connection().await.expect("connected")
}

/// A limit that only ends what hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// URLs for redis-rs, of the addresses that nodes announce.
fn announced(mocks: &MockCluster) -> Vec<String> {
    (0..mocks.len()).map(|node| format!("redis://{}/?protocol=resp3", mocks.announced(node))).collect()
}

#[tokio::test]
async fn commands_reach_every_node() {
    let mocks = mocks().await;
    let mut con = connect::<Emulated>(announced(&mocks)).await;
    for node in 0..3 {
        let key = mocks.key_of(node, 0);
        let () = con.set(&key, node).await.expect("set");
        assert_eq!(con.get::<_, usize>(&key).await.expect("a number"), node);
        assert!(mocks.calls(node, "set") > 0);
    }
    let keys: Vec<_> = (0..3).map(|node| mocks.key_of(node, 0)).collect();
    let all: Vec<usize> = con.mget(&keys).await.expect("split and joined");
    assert_eq!(all, [0, 1, 2]);
}

#[tokio::test]
async fn slots_that_move_are_followed() {
    let mocks = mocks().await;
    let mut con = connect::<Emulated>(announced(&mocks)).await;
    let key = mocks.key_of(0, 0);
    let slot = MockCluster::slot(&key);
    assert_eq!(con.incr::<_, _, i64>(&key, 1).await.expect("counted"), 1);
    mocks.begin_migration(slot..=slot, 1);
    assert_eq!(mocks.move_keys(slot, 10), 1);
    assert_eq!(con.incr::<_, _, i64>(&key, 1).await.expect("behind ASKING"), 2);
    assert!(mocks.calls(1, "asking") > 0);
    mocks.finish_migration(slot..=slot);
    assert_eq!(con.incr::<_, _, i64>(&key, 1).await.expect("behind MOVED"), 3);
}

#[tokio::test]
async fn a_lost_node_is_connected_again() {
    let mocks = mocks().await;
    let mut con = connect::<Emulated>(announced(&mocks)).await;
    let key = mocks.key_of(2, 0);
    let () = con.set(&key, "x").await.expect("set");
    mocks.disconnect(2).await;
    // Which commands are sent again is redis-rs's decision: reading ones are.
    let mut tries = 0;
    while con.get::<_, String>(&key).await.is_err() {
        tries += 1;
        assert!(tries < 100, "never again");
    }
}

#[tokio::test]
async fn messages_arrive() {
    let mocks = mocks().await;
    let (sender, mut pushes) = tokio::sync::mpsc::unbounded_channel();
    let client = ClusterClient::builder(announced(&mocks))
        .use_protocol(redis::ProtocolVersion::RESP3)
        .push_sender(sender)
        .build()
        .expect("good URLs");
    let mut con = client.get_async_generic_connection::<NodeConnection<Emulated>>().await.expect("connected");
    con.subscribe("news").await.expect("subscribed");
    let () = con.publish("news", "hello").await.expect("published");
    loop {
        let push = pushes.recv().await.expect("a message");
        if push.kind == redis::PushKind::Message {
            assert_eq!(push.data[1], redis::Value::BulkString(b"hello".to_vec()));
            return;
        }
    }
}

#[tokio::test]
async fn ports_follow_the_rule_of_the_settings() {
    let both = Transports::Both(DeviceKind::Emulated);
    let mocks = MockCluster::builder(3).transports(both).start().await.expect("free ports");
    let mut con = connect::<PortAfterTcp>(announced(&mocks)).await;
    // The announced ports speak plain TCP: the emulated device could not connect there.
    for node in 0..3 {
        let () = con.set(mocks.key_of(node, 0), "x").await.expect("set");
    }
}

#[tokio::test]
async fn tls_is_refused_and_rdma_is_the_default() {
    assert_eq!(Rdma::endpoint().expect("valid").transport(), Transport::Rdma);
    let info: redis::ConnectionInfo = "redis://h:1".parse().expect("a URL");
    let tls = redis::ConnectionAddr::TcpTls { host: "h".into(), port: 1, insecure: false, tls_params: None };
    let connect = <NodeConnection as redis::cluster_async::Connect>::connect_with_config(
        info.set_addr(tls),
        redis::AsyncConnectionConfig::new(),
    );
    let error = connect.await.expect_err("TLS");
    assert_eq!(error.kind(), ErrorKind::InvalidClientConfig);
}

/// On this project's cluster client, too, programs may look at the kind.
#[tokio::test]
async fn keys_of_different_slots_are_redis_rs_own_kind_of_error() {
    let mocks = mocks().await;
    let mut con = client_of(&mocks, &unhurried()).await;
    let error = con.sunionstore::<_, _, i64>("a", &["b", "c"]).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Server(redis::ServerErrorKind::CrossSlot));
    assert_eq!(error.code(), Some("CROSSSLOT"));
    assert!(error.to_string().contains("hash tag"), "{error}");
}

/// As on the client of one server.
#[tokio::test]
async fn an_aborted_transaction_is_the_servers_error() {
    let mocks = mocks().await;
    let mut con = client_of(&mocks, &unhurried()).await;
    let aborted = redis::pipe().atomic().cmd("INCR").arg("n").cmd("GET").exec_async(&mut con).await;
    let error = aborted.expect_err("GET needs a key");
    assert_eq!(error.kind(), ErrorKind::Server(redis::ServerErrorKind::ExecAbort));
    assert_eq!(error.code(), Some("EXECABORT"));
    let text = error.to_string();
    assert!(
        text.contains("Transaction aborted: [(Index 1, error: ResponseError: wrong number of arg"),
        "{text}"
    );
}
