//! Subscriptions through a gateway in front of a cluster.

use valkey_rdma_mock::MockCluster;

use super::{cluster, limits, move_slot};
use crate::support::{cluster_config, encode, start, text};

#[tokio::test]
async fn messages_of_all_kinds_arrive() {
    let (_mocks, gateway) = cluster().await;
    let (mut subscriber, mut publisher) = (gateway.client().await, gateway.client().await);
    assert_eq!(subscriber.say("SUBSCRIBE c d").await, "[subscribe c :1]");
    assert_eq!(text(&subscriber.reply().await), "[subscribe d :2]");
    assert_eq!(subscriber.say("PSUBSCRIBE c*").await, "[psubscribe c* :3]");
    assert_eq!(subscriber.say("SSUBSCRIBE s").await, "[ssubscribe s :1]");
    assert!(subscriber.say("GET k").await.starts_with("-ERR Can't execute 'get'"));
    assert_eq!(subscriber.say("PING").await, "[pong ]");
    publisher.say("PUBLISH c 1").await;
    let mut both = [text(&subscriber.reply().await), text(&subscriber.reply().await)];
    both.sort();
    assert_eq!(both, ["[message c 1]", "[pmessage c* c 1]"]);
    assert_eq!(publisher.say("SPUBLISH s 2").await, ":1");
    assert_eq!(text(&subscriber.reply().await), "[smessage s 2]");
    assert_eq!(subscriber.say("UNSUBSCRIBE").await, "[unsubscribe c :2]");
    assert_eq!(text(&subscriber.reply().await), "[unsubscribe d :1]");
    assert_eq!(subscriber.say("PUNSUBSCRIBE c*").await, "[punsubscribe c* :0]");
    assert_eq!(subscriber.say("SUNSUBSCRIBE s none").await, "[sunsubscribe s :0]");
    assert_eq!(text(&subscriber.reply().await), "[sunsubscribe none :0]");
    assert_eq!(subscriber.say("GET k").await, "(nil)", "no subscription is left");
    assert_eq!(subscriber.say("UNSUBSCRIBE").await, "[unsubscribe (nil) :0]");
}

#[tokio::test]
async fn with_resp3_a_subscriber_runs_commands_too() {
    let (_mocks, gateway) = cluster().await;
    let (mut subscriber, mut publisher) = (gateway.client().await, gateway.client().await);
    subscriber.hello3("").await;
    subscriber.command("SUBSCRIBE c").await;
    subscriber.expect_bytes(b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n").await;
    assert_eq!(subscriber.say("SET k v").await, "OK");
    assert_eq!(subscriber.say("GET k").await, "v");
    let info = subscriber.say("CLIENT INFO").await;
    assert!(info.contains(" tot-cmds=5 "), "{info}");
    publisher.say("PUBLISH c hi").await;
    subscriber.expect_bytes(b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n").await;
}

#[tokio::test]
async fn subscriptions_that_have_ended_do_not_count() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let gateway = start(&cluster_config(mocks.urls(), limits(|limits| limits.upstreams = 8))).await;
    let mut subscriber = gateway.client().await;
    assert_eq!(subscriber.say("SUBSCRIBE keep").await, "[subscribe keep :1]");
    for number in 0..20 {
        assert_eq!(
            subscriber.say(&format!("SSUBSCRIBE c{number}")).await,
            format!("[ssubscribe c{number} :1]")
        );
        assert_eq!(
            subscriber.say(&format!("SUNSUBSCRIBE c{number}")).await,
            format!("[sunsubscribe c{number} :0]")
        );
    }
    // One that fails as a whole keeps nothing.
    let channels = (0..20).map(|number| format!(" c{number}")).collect::<String>();
    assert!(subscriber.say(&format!("SSUBSCRIBE{channels}")).await.starts_with("-NOUPSTREAM"));
    assert_eq!(gateway.info("gateway_connections").await, 1);
}

#[tokio::test]
async fn a_subscriber_that_never_reads_is_closed() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let limits = limits(|limits| (limits.unread_bytes, limits.slow_reader_ms) = (1 << 20, 100));
    let gateway = start(&cluster_config(mocks.urls(), limits)).await;
    let (mut hostile, mut publisher) = (gateway.client().await, gateway.client().await);
    assert_eq!(hostile.say("SUBSCRIBE c").await, "[subscribe c :1]");
    let message = encode([&b"PUBLISH"[..], b"c", &[b'x'; 1 << 20]]);
    for _ in 0..64 {
        publisher.send(&message).await;
        publisher.reply().await;
    }
    gateway.until("gateway_clients_slow", |count| count == 1).await;
    gateway.until("gateway_unread_bytes", |bytes| bytes == 0).await;
    gateway.until("gateway_connections", |count| count == 0).await;
}

#[tokio::test]
async fn a_shard_channel_moves_with_its_slot() {
    let (mocks, gateway) = cluster().await;
    let (mut subscriber, mut publisher) = (gateway.client().await, gateway.client().await);
    assert_eq!(subscriber.say("SSUBSCRIBE orders").await, "[ssubscribe orders :1]");
    move_slot(&mocks, "orders");
    // Published until the subscription has arrived at the other node.
    while publisher.say("SPUBLISH orders moved").await == ":0" {
        tokio::task::yield_now().await;
    }
    assert_eq!(text(&subscriber.reply().await), "[smessage orders moved]");
}
