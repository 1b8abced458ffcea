//! Commands that concern several nodes, or any, while one of these is away or frozen.

use std::time::Duration;

use tokio::time::timeout;
use valkey_rdma_mock::MockCluster;
use valkey_rdma_server::Reply;

use super::{cluster, limits};
use crate::support::{Running, cluster_config, start, text};

/// Longer than a reply takes that waits for nothing.
const SOON: Duration = Duration::from_millis(300);

/// Three primaries with replicas, which answer SCRIPT LOAD, and a gateway with this `offline_ms`.
async fn with_patience(offline_ms: u64) -> (MockCluster, Running) {
    let mocks = MockCluster::builder(3).replicas(1).start().await.expect("free ports");
    for node in 0..mocks.len() {
        mocks.answer(node, "script|load", Some(Reply::bulk("sha")));
    }
    let limits = limits(|limits| limits.offline_ms = offline_ms);
    let gateway = start(&cluster_config(mocks.urls(), limits)).await;
    (mocks, gateway)
}

#[tokio::test]
async fn a_command_for_all_nodes_does_without_a_replica_that_is_away() {
    let (mocks, gateway) = with_patience(3000).await;
    for node in 0..mocks.len() {
        mocks.answer(node, "slowlog|len", Some(Reply::Integer(2)));
    }
    let mut client = gateway.client().await;
    assert_eq!(client.say("SLOWLOG LEN").await, ":12");
    let (away, other) = (mocks.replicas_of(0)[0], mocks.replicas_of(1)[0]);
    mocks.freeze(away);
    assert_eq!(client.say("SCRIPT LOAD script").await, "sha");
    assert_eq!(client.say("SLOWLOG LEN").await, ":10");
    mocks.thaw(away);
    mocks.kill(away).await;
    assert_eq!(client.say("SCRIPT LOAD script").await, "sha");
    // What a replica says counts.
    mocks.answer(other, "script|load", Some(Reply::error("OOM no memory")));
    let reply = client.say("SCRIPT LOAD script").await;
    assert!(reply.starts_with("-OOM 1 of the command's 6 parts failed"), "{reply}");
}

/// It may refuse the command, as one server would.
#[tokio::test]
async fn a_command_for_all_nodes_waits_for_a_replica_that_is_slow_and_for_none_that_is_silent() {
    let (mocks, gateway) = with_patience(86_400_000).await;
    let mut client = gateway.client().await;
    assert_eq!(client.say("SCRIPT LOAD script").await, "sha", "all nodes are connected");
    let slow = mocks.replicas_of(0)[0];
    mocks.answer(slow, "script|load", Some(Reply::error("OOM no memory")));
    mocks.freeze(slow);
    client.command("SCRIPT LOAD script").await;
    loop {
        let mut other = gateway.client().await;
        other.command("SCRIPT LOAD script").await;
        if let Ok(reply) = timeout(SOON, other.reply()).await {
            assert_eq!(text(&reply), "sha");
            break;
        }
    }
    mocks.thaw(slow);
    let reply = text(&client.reply().await);
    assert!(reply.starts_with("-OOM 1 of the command's 6 parts failed"), "{reply}");
}

/// The others have carried it out: its client learns that, and can go on with them.
#[tokio::test]
async fn a_command_for_several_nodes_without_one_of_the_primaries_is_answered_with_an_error() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let gateway = start(&cluster_config(mocks.urls(), limits(|limits| limits.offline_ms = 300))).await;
    let (lost, there) = (mocks.key_of(1, 0), mocks.key_of(0, 0));
    let mut client = gateway.client().await;
    assert_eq!(client.say("DBSIZE").await, ":0");
    mocks.kill(1).await;
    // The gateway notices.
    let mut other = gateway.client().await;
    other.command(&format!("GET {lost}")).await;
    other.expect_end().await;
    let unanswered = gateway.info("gateway_commands_may_have_run").await;
    for line in ["FLUSHALL", "SCRIPT FLUSH"] {
        let reply = client.say(line).await;
        assert!(reply.starts_with("-ERR 1 of the command's 3 parts failed"), "{line}: {reply}");
    }
    assert_eq!(gateway.info("gateway_commands_may_have_run").await, unanswered + 2);
    assert_eq!(client.say(&format!("GET {there}")).await, "(nil)");
}

#[tokio::test]
async fn some_node_answers_ping_and_hello_while_another_is_frozen() {
    let (mocks, gateway) = cluster().await;
    assert_eq!(gateway.client().await.say("DBSIZE").await, ":0", "all primaries are connected");
    mocks.freeze(0);
    for _ in 0..12 {
        let mut client = gateway.client().await;
        assert_eq!(client.say("PING").await, "PONG");
        let hello = text(&client.call("HELLO").await);
        assert!(hello.contains("standalone"), "{hello}");
    }
    mocks.thaw(0);
}
