//! Subscriptions through a gateway in front of a cluster.

use valkey_rdma_client::Client;
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

/// The client would get those of one node only.
#[tokio::test]
async fn subscriptions_to_keyspace_notifications_are_refused_with_the_reason() {
    let (_mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    for line in [
        "SUBSCRIBE __keyspace@0__:k",
        "SUBSCRIBE c __keyevent@0__:expired",
        "PSUBSCRIBE __keyspace@*",
        "PSUBSCRIBE c* __keyevent@0__:*",
        "PSUBSCRIBE __key*__:*",
    ] {
        let refusal = client.say(line).await;
        let is_clear =
            refusal.starts_with("-ERR the gateway of a cluster refuses") && refusal.contains("each node");
        assert!(is_clear, "{line}: {refusal}");
    }
    assert_eq!(client.say("GET k").await, "(nil)", "it has no subscription");
    assert_eq!(client.say("SUBSCRIBE __keyboard").await, "[subscribe __keyboard :1]");
    assert_eq!(client.say("PSUBSCRIBE __*").await, "[psubscribe __* :2]");
    assert_eq!(client.say("SSUBSCRIBE __keyspace@0__:k").await, "[ssubscribe __keyspace@0__:k :1]");
}

/// As a server does, which sends both on one connection.
#[tokio::test]
async fn messages_that_precede_the_end_of_a_subscription_precede_its_confirmation() {
    let (mocks, gateway) = cluster().await;
    let mut commands = 0;
    for (prefix, name, message) in [("", "c", "[message c last]"), ("p", "c*", "[pmessage c* c last]")] {
        let mut subscriber = gateway.client().await;
        let confirmed = subscriber.say(&format!("{prefix}subscribe {name}")).await;
        assert_eq!(confirmed, format!("[{prefix}subscribe {name} :1]"));
        let carries = |node: &usize| mocks.calls(*node, &format!("{prefix}subscribe")) > 0;
        let node = (0..3).find(carries).unwrap();
        let publisher = Client::connect(mocks.url((node + 1) % 3)).await.unwrap();
        // The confirmation comes when the client waits for it, right behind the message.
        mocks.freeze(node);
        subscriber.command(&format!("{prefix}unsubscribe")).await;
        commands += 2;
        gateway.until("gateway_commands_private", |count| count == commands).await;
        publisher.command(["PUBLISH", "c", "last"]).await.unwrap();
        mocks.thaw(node);
        assert_eq!(text(&subscriber.reply().await), message);
        assert_eq!(text(&subscriber.reply().await), format!("[{prefix}unsubscribe {name} :0]"));
    }
}

#[tokio::test]
async fn with_resp3_a_subscriber_gets_messages_while_its_command_waits() {
    let (mocks, gateway) = cluster().await;
    let (channel, key) = (mocks.key_of(0, 0), mocks.key_of(1, 0));
    let (mut subscriber, mut publisher) = (gateway.client().await, gateway.client().await);
    subscriber.hello3("").await;
    let confirmed = subscriber.say(&format!("SSUBSCRIBE {channel}")).await;
    assert_eq!(confirmed, format!("[ssubscribe {channel} :1]"));

    subscriber.command(&format!("BLPOP {key} 0")).await;
    gateway.until("gateway_commands_private", |count| count == 2).await;
    assert_eq!(publisher.say(&format!("SPUBLISH {channel} one")).await, ":1");
    assert_eq!(text(&subscriber.reply().await), format!("[smessage {channel} one]"));
    assert_eq!(publisher.say(&format!("RPUSH {key} item")).await, ":1");
    assert_eq!(text(&subscriber.reply().await), format!("[{key} item]"));

    mocks.freeze(1);
    subscriber.command(&format!("GET {key}")).await;
    gateway.until("gateway_commands_private", |count| count == 3).await;
    assert_eq!(publisher.say(&format!("SPUBLISH {channel} two")).await, ":1");
    assert_eq!(text(&subscriber.reply().await), format!("[smessage {channel} two]"));
    mocks.thaw(1);
    assert_eq!(text(&subscriber.reply().await), "(nil)");
}

/// What does not fit into the socket at once would wait for the reply, and its client could be closed as one that does not read.
#[tokio::test]
async fn a_large_message_reaches_its_subscriber_while_a_command_waits() {
    let (mocks, gateway) = cluster().await;
    let (channel, key) = (mocks.key_of(0, 0), mocks.key_of(1, 0));
    let (mut subscriber, mut publisher) = (gateway.client().await, gateway.client().await);
    subscriber.hello3("").await;
    let confirmed = subscriber.say(&format!("SSUBSCRIBE {channel}")).await;
    assert_eq!(confirmed, format!("[ssubscribe {channel} :1]"));
    mocks.freeze(1);
    subscriber.command(&format!("GET {key}")).await;
    gateway.until("gateway_commands_private", |count| count == 2).await;
    let large = "x".repeat(4 << 20);
    publisher.send(encode(["SPUBLISH", &channel, &large])).await;
    assert_eq!(text(&publisher.reply().await), ":1");
    let message = text(&subscriber.reply().await);
    assert!(message == format!("[smessage {channel} {large}]"), "{} bytes", message.len());
    mocks.thaw(1);
    assert_eq!(text(&subscriber.reply().await), "(nil)");
}

/// The node sends them late, as it has confirmed that end late.
#[tokio::test]
async fn messages_of_a_subscription_that_has_ended_do_not_come_with_the_next_one() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let gateway = start(&cluster_config(mocks.urls(), limits(|limits| limits.offline_ms = 300))).await;
    let mut subscriber = gateway.client().await;
    assert_eq!(subscriber.say("SUBSCRIBE c").await, "[subscribe c :1]");
    assert_eq!(subscriber.say("SUBSCRIBE keep").await, "[subscribe keep :2]");
    let node = (0..3).find(|node| mocks.calls(*node, "subscribe") > 0).unwrap();
    let publisher = Client::connect(mocks.url((node + 1) % 3)).await.unwrap();
    mocks.freeze(node);
    assert_eq!(subscriber.say("UNSUBSCRIBE c").await, "[unsubscribe c :1]");
    subscriber.command("SUBSCRIBE d").await;
    gateway.until("gateway_commands_private", |count| count == 4).await;
    publisher.command(["PUBLISH", "c", "late"]).await.unwrap();
    mocks.thaw(node);
    assert_eq!(text(&subscriber.reply().await), "[subscribe d :2]");
    publisher.command(["PUBLISH", "d", "now"]).await.unwrap();
    assert_eq!(text(&subscriber.reply().await), "[message d now]");
}

/// As a server, which looks at that first.
#[tokio::test]
async fn a_subscriber_learns_that_the_number_of_words_is_wrong() {
    let (_mocks, gateway) = cluster().await;
    let mut subscriber = gateway.client().await;
    assert_eq!(subscriber.say("SUBSCRIBE c").await, "[subscribe c :1]");
    for (line, expected) in [
        ("RESET x", "-ERR wrong number of arguments for 'reset' command"),
        ("MULTI x", "-ERR wrong number of arguments for 'multi' command"),
        ("WATCH", "-ERR wrong number of arguments for 'watch' command"),
        ("PSUBSCRIBE", "-ERR wrong number of arguments for 'psubscribe' command"),
        (
            "EXEC x",
            "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
        ),
    ] {
        assert_eq!(subscriber.say(line).await, expected, "{line}");
    }
    assert_eq!(subscriber.say("SUBSCRIBE d").await, "[subscribe d :2]");
}

#[tokio::test]
async fn a_subscriber_gets_messages_while_a_subscription_waits_and_none_before_its_confirmation() {
    let (mocks, gateway) = cluster().await;
    let (known, early, late) = (mocks.key_of(0, 0), mocks.key_of(0, 1), mocks.key_of(1, 0));
    let (mut subscriber, mut publisher) = (gateway.client().await, gateway.client().await);
    let confirmed = subscriber.say(&format!("SSUBSCRIBE {known}")).await;
    assert_eq!(confirmed, format!("[ssubscribe {known} :1]"));
    mocks.freeze(1);
    subscriber.command(&format!("SSUBSCRIBE {early} {late}")).await;
    // Published until its node has the subscription.
    while publisher.say(&format!("SPUBLISH {early} held")).await == ":0" {
        tokio::task::yield_now().await;
    }
    assert_eq!(publisher.say(&format!("SPUBLISH {known} now")).await, ":1");
    assert_eq!(text(&subscriber.reply().await), format!("[smessage {known} now]"));
    mocks.thaw(1);
    for expected in [
        format!("[ssubscribe {early} :2]"),
        format!("[ssubscribe {late} :3]"),
        format!("[smessage {early} held]"),
    ] {
        assert_eq!(text(&subscriber.reply().await), expected);
    }
}
