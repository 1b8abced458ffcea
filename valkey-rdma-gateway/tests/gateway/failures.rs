//! Hostile servers and hostile clients.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use valkey_rdma_gateway::Share;
use valkey_rdma_mock::Mock;
use valkey_rdma_resp::Value;

use crate::scripted::{Scripted, expect, log_in};
use crate::support::{PATIENCE, encode, gateway, in_front_of, mock_with, text};

#[tokio::test]
async fn a_hostile_server_ends_only_its_own_connections() {
    for garbage in
        [&b"hello\r\n"[..], b"+OK\r\n+OK\r\n", b"*1000000000000\r\n", b"\r\n", b"$5\r\nabcdefgh\r\n"]
    {
        let server = Scripted::start().await;
        let gateway = gateway(&server.url, Share::Auto).await;
        let mut client = gateway.client().await;
        client.command("INCR k").await;
        let mut connection = server.accept().await;
        expect(&mut connection, &encode(["INCR", "k"])).await;
        connection.write_all(garbage).await.unwrap();
        if garbage.starts_with(b"+OK") {
            assert_eq!(text(&client.reply().await), "OK");
            assert_eq!(client.say("CLIENT GETNAME").await, "(nil)", "the client is served on");
        } else {
            client.expect_end().await;
            client = gateway.client().await;
        }
        client.command("INCR k").await;
        let mut connection = server.accept().await;
        expect(&mut connection, &encode(["INCR", "k"])).await;
    }
}

#[tokio::test]
async fn push_messages_on_a_shared_connection_are_dropped() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let mut client = gateway.client().await;
    let gets = [encode(["GET", "a"]), encode(["GET", "b"])].concat();
    client.send(&gets).await;
    let mut connection = server.accept().await;
    expect(&mut connection, &gets).await;
    let push = [&b">2\r\n$10\r\ninvalidate\r\n$100000\r\n"[..], &[b'k'; 100_000], b"\r\n"].concat();
    connection
        .write_all(&[&push[..], b"$1\r\na\r\n", &push, &push, b"$1\r\nb\r\n", &push].concat())
        .await
        .unwrap();
    client.expect_bytes(b"$1\r\na\r\n$1\r\nb\r\n").await;
}

#[tokio::test]
async fn a_client_that_never_reads_is_closed_and_others_go_on() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = in_front_of(&url, |limits| {
        limits.unread_bytes = 2 << 20;
        limits.slow_reader_ms = 100;
    })
    .await;
    let (mut hostile, mut other) = (gateway.client().await, gateway.client().await);
    let value = vec![b'x'; 1 << 20];
    hostile.send(encode([&b"SET"[..], b"large", &value])).await;
    assert_eq!(text(&hostile.reply().await), "OK");
    let pipeline = encode(["GET", "large"]).repeat(50);
    hostile.send(pipeline).await;
    gateway.until("gateway_clients_slow", |count| count == 1).await;
    assert_eq!(other.say("GET k").await, "(nil)");
    let mut rest = Vec::new();
    // It ends, with an error or not.
    let _ = timeout(PATIENCE, hostile.stream.read_to_end(&mut rest)).await.expect("in time");
    assert!(rest.len() < 50 << 20);
}

#[tokio::test]
async fn nobody_waits_for_a_client_that_reads_slowly() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = in_front_of(&url, |limits| {
        limits.unread_bytes = 2 << 20;
        limits.slow_reader_ms = 600_000;
    })
    .await;
    let (mut slow, mut other) = (gateway.client().await, gateway.client().await);
    let value = vec![b'x'; 1 << 20];
    slow.send(encode([&b"SET"[..], b"large", &value])).await;
    assert_eq!(text(&slow.reply().await), "OK");
    slow.send(encode(["GET", "large"]).repeat(20)).await;
    gateway.until("gateway_unread_bytes", |bytes| bytes > 2 << 20).await;
    for _ in 0..20 {
        assert_eq!(other.say("GET k").await, "(nil)");
    }
    for _ in 0..20 {
        assert_eq!(slow.reply().await.as_bytes(), Some(&value[..]));
    }
}

/// However fast its clients read, the gateway bounds their replies in memory.
#[tokio::test]
async fn replies_beyond_the_total_wait_for_their_readers_or_end_them() {
    for (slow_reader_ms, reads) in [(600_000, true), (100, false)] {
        let (_server, url, _) = mock_with(Mock::new()).await;
        let gateway = in_front_of(&url, |limits| {
            limits.unread_bytes_total = 4 << 20;
            limits.slow_reader_ms = slow_reader_ms;
        })
        .await;
        let (mut client, mut other) = (gateway.client().await, gateway.client().await);
        let value = vec![b'x'; 1 << 20];
        client.send(encode([&b"SET"[..], b"large", &value])).await;
        assert_eq!(text(&client.reply().await), "OK");
        client.send(encode(["GET", "large"]).repeat(30)).await;
        gateway.until("gateway_unread_bytes", |bytes| bytes > 4 << 20).await;
        assert!(gateway.info("gateway_unread_bytes").await < 6 << 20);
        if reads {
            for _ in 0..30 {
                assert_eq!(client.reply().await.as_bytes(), Some(&value[..]));
            }
        } else {
            gateway.until("gateway_clients_slow", |count| count == 1).await;
        }
        assert_eq!(other.say("GET k").await, "(nil)");
    }
}

#[tokio::test]
async fn half_commands_and_idle_clients_disturb_no_other() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = in_front_of(&url, |limits| limits.clients = 300).await;
    let mut hostile = Vec::new();
    for number in 0..250 {
        let mut client = gateway.client().await;
        match number % 4 {
            0 => {}
            1 => client.send("*3\r\n$3\r\nSET\r\n$1\r\n").await,
            2 => client.send("SET k").await,
            _ => client.send("*2\r\n$4\r\nECHO\r\n$60000\r\nxxxx").await,
        }
        hostile.push(client);
    }
    // An endless argument: passed on over a private connection, which the others do not notice.
    let mut endless = gateway.client().await;
    let mut begun = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\n".to_vec();
    begun.resize(200_000, b'x');
    endless.send(begun).await;
    gateway.until("gateway_connections", |count| count == 2).await;
    let mut client = gateway.client().await;
    assert_eq!(client.say("SET k v").await, "OK");
    assert_eq!(client.say("GET k").await, "v");
    // The server would wait for its rest for ever.
    drop(endless);
    gateway.until("gateway_connections", |count| count == 1).await;
    for _ in 0..60 {
        hostile.push(gateway.owner().await);
    }
    let mut refused = hostile.pop().unwrap();
    let reply = timeout(Duration::from_secs(30), refused.try_reply()).await.expect("in time");
    let error = reply.map(|reply| text(&reply));
    assert_eq!(error.as_deref(), Some("-ERR max number of clients reached"));
}

#[tokio::test]
async fn half_a_command_is_never_run() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let (mut cut, mut other) = (gateway.client().await, gateway.client().await);
    let id = cut.say("CLIENT ID").await[1..].to_owned();
    // What the gateway sends to clean a connection would fit into what is missing.
    let set = encode([&b"SET"[..], b"k", &[b'x'; 70_000]]);
    cut.send(&set[..set.len() - 32]).await;
    gateway.until("gateway_commands_private", |count| count == 1).await;
    assert_eq!(other.say(&format!("CLIENT KILL ID {id}")).await, ":1");
    cut.expect_end().await;
    gateway.until("gateway_connections", |count| count == 1).await;
    assert_eq!(other.say("GET k").await, "(nil)");
}

#[tokio::test]
async fn earlier_replies_come_before_the_error_about_a_broken_command() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let mut client = gateway.client().await;
    let _shared = server.accept().await;
    let (watch, set) = (encode(["WATCH", "k"]), encode([&b"SET"[..], b"k", &[b'x'; 70_000], b""]));
    // Without the last argument, in whose place something else follows.
    let begun = &set[..set.len() - 6];
    client.send([&watch, begun].concat()).await;
    let mut private = server.accept_as("", 8).await;
    expect(&mut private, &[&watch, begun].concat()).await;
    client.send(b":1\r\n").await;
    private.write_all(b"+OK\r\n").await.unwrap();
    assert_eq!(text(&client.reply().await), "OK");
    let error = text(&client.reply().await);
    assert!(error.starts_with("-ERR Protocol error: expected '$'"), "{error}");
    client.expect_end().await;
}

#[tokio::test]
async fn a_client_that_is_gone_takes_no_reply_of_others() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let (mut gone, mut other) = (gateway.client().await, gateway.client().await);
    gone.command("GET a").await;
    let mut connection = server.accept().await;
    expect(&mut connection, &encode(["GET", "a"])).await;
    other.command("GET b").await;
    expect(&mut connection, &encode(["GET", "b"])).await;
    drop(gone);
    connection.write_all(b"$1\r\na\r\n$1\r\nb\r\n").await.unwrap();
    assert_eq!(other.reply().await, Value::Bulk("b".into()));
}

#[tokio::test]
async fn deeply_nested_replies_harm_no_other() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let (mut one, mut other) = (gateway.client().await, gateway.client().await);
    one.command("ZRANGE a 0").await;
    let mut connection = server.accept().await;
    expect(&mut connection, &encode(["ZRANGE", "a", "0"])).await;
    other.command("GET b").await;
    expect(&mut connection, &encode(["GET", "b"])).await;
    let deep = [&b"*1\r\n".repeat(8000)[..], b":1\r\n"].concat();
    connection.write_all(&[&deep[..], b"$1\r\nb\r\n"].concat()).await.unwrap();
    one.expect_bytes(&deep).await;
    assert_eq!(text(&other.reply().await), "b");
}

#[tokio::test]
async fn clients_do_not_wait_behind_a_command_that_takes_long() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let mut slow = gateway.client().await;
    slow.command("SORT long").await;
    let mut first = server.accept().await;
    expect(&mut first, &encode(["SORT", "long"])).await;
    // Those that come at once wait behind it, until it counts as long.
    let mut waiting = Vec::new();
    let (mut client, second) = loop {
        let mut client = gateway.client().await;
        client.command("GET b").await;
        match server.accept_soon().await {
            Some(second) => break (client, second),
            None => waiting.push(client),
        }
    };
    let mut second = log_in(second, &[], "valkey-rdma-gateway", 8).await;
    expect(&mut second, &encode(["GET", "b"])).await;
    second.write_all(b"$1\r\nb\r\n").await.unwrap();
    assert_eq!(text(&client.reply().await), "b");
    first.write_all(&[&b":1\r\n"[..], &b"$1\r\nw\r\n".repeat(waiting.len())].concat()).await.unwrap();
    assert_eq!(text(&slow.reply().await), ":1");
    for client in &mut waiting {
        assert_eq!(text(&client.reply().await), "w");
    }
    // All use the second one from now on.
    slow.command("GET c").await;
    expect(&mut second, &encode(["GET", "c"])).await;
}

#[tokio::test]
async fn commands_do_not_wait_behind_scripts_of_others() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let (mut one, mut other) = (gateway.client().await, gateway.client().await);
    let mut plain = server.accept().await;
    let script = encode(["EVAL", "while true do end", "0"]);
    let get = encode(["GET", "k"]);
    one.send(&script).await;
    let mut scripts = server.accept().await;
    expect(&mut scripts, &script).await;
    other.send(&get).await;
    expect(&mut plain, &get).await;
    plain.write_all(b"$1\r\nv\r\n").await.unwrap();
    assert_eq!(text(&other.reply().await), "v");
    // What a client sends after its script follows it.
    one.send([&get[..], &script].concat()).await;
    expect(&mut scripts, &[&get[..], &script].concat()).await;
    scripts.write_all(b":1\r\n$1\r\nw\r\n:2\r\n").await.unwrap();
    for expected in [":1", "w", ":2"] {
        assert_eq!(text(&one.reply().await), expected);
    }
    // A script waits for the replies to what was sent before it.
    one.send([&get[..], &script].concat()).await;
    expect(&mut plain, &get).await;
    plain.write_all(b"$1\r\nv\r\n").await.unwrap();
    expect(&mut scripts, &script).await;
}
