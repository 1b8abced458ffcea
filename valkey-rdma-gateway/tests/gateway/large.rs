//! Commands that are too long for the gateway: the client sends all of it, reads the reason, and goes on.

use valkey_rdma_gateway::Limits;
use valkey_rdma_mock::{Mock, MockCluster};

use super::support::{Client, Running, advance, cluster_config, encode, in_front_of, mock_with, start, text};

/// More than the buffers between a client and the gateway hold.
const LARGE: usize = 4 << 20;

/// The gateway of a cluster, which keeps commands of up to 1 MiB.
async fn in_front_of_cluster(mocks: &MockCluster) -> Running {
    let mut limits = Limits::default();
    limits.cluster_command_bytes = 1 << 20;
    start(&cluster_config(mocks.urls(), limits)).await
}

/// A large value between small commands: each has its answer, in order. Returns that of the large one.
async fn refusal(client: &mut Client, key: &str) -> String {
    let value = "x".repeat(LARGE);
    let commands = [encode(["SET", key, "small"]), encode(["SET", key, &value]), encode(["GET", key])];
    client.send(commands.concat()).await;
    assert_eq!(text(&client.reply().await), "OK");
    let refusal = text(&client.reply().await);
    assert_eq!(text(&client.reply().await), "small");
    refusal
}

#[tokio::test]
async fn a_large_value_for_which_there_is_no_connection_was_not_sent() {
    let (server, _, url) = mock_with(Mock::new()).await;
    let gateway = in_front_of(&url, |limits| limits.offline_ms = 100).await;
    let mut client = gateway.client().await;
    assert_eq!(client.say("SET k v").await, "OK");
    server.shutdown().await;
    // The end may come before all of it is written.
    let sent = client.stream_send(&encode(["SET", "k", &"x".repeat(LARGE)])).await;
    if sent.is_some() {
        client.expect_end().await;
    }
    gateway.until("gateway_commands_not_sent", |count| count == 1).await;
}

#[tokio::test]
async fn a_cluster_refuses_what_is_longer_than_its_limit() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let gateway = in_front_of_cluster(&mocks).await;
    let mut client = gateway.client().await;
    let value = "x".repeat(900_000);
    assert_eq!(client.say(&format!("SET k {value}")).await, "OK");
    assert_eq!(client.say("GET k").await, value);
    for _ in 0..2 {
        let refusal = refusal(&mut client, "k").await;
        assert!(refusal.contains("longer than limits.cluster_command_bytes = 1048576"), "{refusal}");
    }
    assert_eq!(gateway.info("gateway_commands_refused").await, 2);
    assert_eq!(gateway.info("gateway_clients").await, 2, "and the one that asks");
}

#[tokio::test]
async fn a_command_that_is_too_long_ends_its_transaction_in_a_cluster() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let gateway = in_front_of_cluster(&mocks).await;
    let mut client = gateway.client().await;
    let value = "x".repeat(LARGE);
    let lines =
        [vec!["MULTI"], vec!["SET", "k", "v"], vec!["SET", "k", &value], vec!["EXEC"], vec!["GET", "k"]];
    client.send(lines.iter().map(encode).collect::<Vec<_>>().concat()).await;
    for expected in ["OK", "QUEUED", "-ERR the command is longer than", "-EXECABORT", "(nil)"] {
        let reply = text(&client.reply().await);
        assert!(reply.starts_with(expected), "{expected}: {reply}");
    }
}

/// A client that leaves in the middle, and a gateway that stops, do not wait for the rest.
#[tokio::test]
async fn what_is_left_of_a_refused_command_is_not_waited_for_at_the_end() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let gateway = in_front_of_cluster(&mocks).await;
    let half = encode(["SET", "k", &"x".repeat(LARGE)]);
    let (mut leaves, mut stays) = (gateway.client().await, gateway.client().await);
    for client in [&mut leaves, &mut stays] {
        client.send(&half[..LARGE / 2]).await;
    }
    drop(leaves);
    gateway.until("gateway_clients", |clients| clients == 2).await;
    gateway.gateway.shutdown().await;
    assert!(text(&stays.reply().await).starts_with("-ERR the command is longer than"));
    stays.expect_end().await;
}

/// Its messages would wait until the rest has come.
#[tokio::test]
async fn a_subscriber_whose_command_is_too_long_is_closed_in_a_cluster() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let gateway = in_front_of_cluster(&mocks).await;
    let mut client = gateway.client().await;
    client.hello3("").await;
    client.call("SUBSCRIBE c").await;
    // It may be closed before it has sent all of that.
    let _closed = client.stream_send(&encode(["SET", "k", &"x".repeat(LARGE)])[..LARGE / 2]).await;
    while client.try_reply().await.is_some() {}
}

#[tokio::test]
async fn a_client_that_does_not_send_the_rest_of_a_refused_command_is_closed() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let gateway = in_front_of_cluster(&mocks).await;
    let mut client = gateway.client().await;
    client.send(&encode(["SET", "k", &"x".repeat(LARGE)])[..LARGE / 2]).await;
    assert!(text(&client.reply().await).starts_with("-ERR the command is longer than"));
    let ended = tokio::spawn(async move { client.expect_end().await });
    while !ended.is_finished() {
        advance(31).await;
    }
    ended.await.expect("nothing but the end");
}
