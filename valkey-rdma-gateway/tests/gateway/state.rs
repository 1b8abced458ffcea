//! Commands that leave state in their connection, and commands that the gateway answers.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use valkey_rdma_gateway::{Limits, Share};
use valkey_rdma_mock::Mock;
use valkey_rdma_resp::Value;

use crate::scripted::{Scripted, expect};
use crate::support::{PATIENCE, Running, advance, config, encode, gateway, mock_with, start, text};

#[tokio::test]
async fn transactions_are_private_and_end() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let (mut one, mut other) = (gateway.client().await, gateway.client().await);
    assert_eq!(one.say("WATCH k").await, "OK");
    assert_eq!(one.say("MULTI").await, "OK");
    assert_eq!(one.say("SET k mine").await, "QUEUED");
    assert_eq!(other.say("SET k theirs").await, "OK");
    assert_eq!(one.say("EXEC").await, "(nil)");
    assert_eq!(one.say("GET k").await, "theirs");
    // One write, with everything in it.
    let lines = ["SET n 1", "MULTI", "INCR n", "INCR n", "EXEC", "GET n"];
    one.send(lines.iter().flat_map(|line| encode(line.split(' '))).collect::<Vec<_>>()).await;
    for expected in ["OK", "OK", "QUEUED", "QUEUED", "[:2 :3]", "3"] {
        assert_eq!(text(&one.reply().await), expected);
    }
    let moves = gateway.info("gateway_moves_to_private").await;
    assert_eq!(one.say("GET n").await, "3");
    assert_eq!(gateway.info("gateway_moves_to_private").await, moves, "it has gone back");
    assert_eq!(gateway.info("gateway_connections").await, 2, "the private connection was used twice");
}

#[tokio::test]
async fn a_command_that_is_refused_for_its_arguments_changes_no_state() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let mut client = gateway.client().await;
    for (line, expected) in [
        ("MULTI x", "-ERR wrong number of arguments for 'multi' command"),
        ("GET k", "(nil)"),
        ("MULTI", "OK"),
        ("RESET x", "-ERR wrong number of arguments for 'reset' command"),
        ("SET k v", "QUEUED"),
        ("DISCARD x", "-ERR wrong number of arguments for 'discard' command"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("GET k", "(nil)"),
    ] {
        assert_eq!(client.say(line).await, expected, "{line}");
    }
    let moves = gateway.info("gateway_moves_to_private").await;
    assert_eq!(client.say("GET k").await, "(nil)");
    assert_eq!(gateway.info("gateway_moves_to_private").await, moves, "it has gone back");
}

#[tokio::test]
async fn hello_means_the_same_on_a_private_connection() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let (mut one, mut other) = (gateway.client().await, gateway.client().await);
    for (client, private) in [(&mut one, true), (&mut other, false)] {
        let id = client.say("CLIENT ID").await;
        if private {
            assert_eq!(client.say("WATCH k").await, "OK");
        }
        let hello = text(&client.hello3(" SETNAME me").await);
        assert!(hello.contains(&format!(" id={id} ")) && hello.contains("proto=:3"), "{hello}");
        assert_eq!(client.say("CLIENT GETNAME").await, "me");
        assert_eq!(client.say("UNWATCH").await, "OK");
        assert_eq!(client.say("CLIENT GETNAME").await, "me");
    }
}

/// Two transactions at once, which leave two idle private connections.
async fn two_transactions(gateway: &Running) {
    let (mut one, mut other) = (gateway.client().await, gateway.client().await);
    for (line, reply) in [("MULTI", "OK"), ("EXEC", "[]")] {
        assert_eq!((one.say(line).await, other.say(line).await), (reply.into(), reply.into()));
    }
}

#[tokio::test]
async fn an_idle_private_connection_gives_way_to_a_shared_one() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let mut limits = Limits::default();
    (limits.upstreams, limits.offline_ms) = (4, 100);
    let gateway = start(&config(&url, Share::Auto, limits)).await;
    two_transactions(&gateway).await;
    let mut clients = Vec::new();
    for database in 0..4 {
        let mut client = gateway.client().await;
        assert_eq!(client.say(&format!("SELECT {database}")).await, "OK");
        clients.push(client);
    }
    assert!(clients[0].say("WATCH k").await.starts_with("-NOUPSTREAM"));
}

#[tokio::test]
async fn private_connections_without_a_client_are_closed() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    two_transactions(&gateway).await;
    assert_eq!(gateway.info("gateway_connections").await, 3);
    advance(61).await;
    gateway.until("gateway_connections", |count| count == 1).await;
}

#[tokio::test]
async fn what_a_client_leaves_behind_is_cleaned() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    for _ in 0..5 {
        let mut client = gateway.client().await;
        assert_eq!(client.say("SUBSCRIBE a").await, "[subscribe a :1]");
        drop(client);
        let mut client = gateway.client().await;
        // Until the gateway has noticed that the subscriber has gone, and cleaned its connection.
        while client.say("PUBLISH a hi").await != ":0" {}
        assert_eq!(client.say("MULTI").await, "OK");
        assert_eq!(client.say("GET k").await, "QUEUED");
        client.command("GET k").await;
    }
}

#[tokio::test]
async fn what_is_not_a_command_closes_and_what_follows_is_not_run() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let set = encode(["SET", "k", "evil"]);
    let long = [b"*3\r\n$4\r\nAUTH\r\n$5\r\nguest\r\n$70000\r\n", &[b'x'; 66_000][..]].concat();
    for (begin, error) in [
        (&b""[..], "-ERR Protocol error: expected '$', got ':'"),
        (b"*1\r\n$5\r\nMULTI\r\n", "-ERR Protocol error: expected '$', got ':'"),
    ] {
        let mut client = gateway.client().await;
        client.send([begin, b"*1\r\n:1\r\n", &set].concat()).await;
        if !begin.is_empty() {
            assert_eq!(text(&client.reply().await), "OK");
        }
        assert_eq!(text(&client.reply().await), error);
        client.expect_end().await;
    }
    let mut client = gateway.client().await;
    assert_eq!(client.say("CLIENT NO-EVICT ON").await, "OK");
    client.send(&long).await;
    assert_eq!(text(&client.reply().await), "-ERR Protocol error: invalid bulk length");
    client.expect_end().await;
    for request in ["POST / HTTP/1.1\r\n", "Host: localhost\r\n"] {
        let mut client = gateway.client().await;
        client.send([request.as_bytes(), &set].concat()).await;
        client.expect_end().await;
    }
    assert_eq!(gateway.client().await.say("GET k").await, "(nil)");
}

#[tokio::test]
async fn blocking_commands_block_only_their_client() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let (mut blocked, mut gone, mut free) =
        (gateway.client().await, gateway.client().await, gateway.client().await);
    gone.command("BLPOP list 0").await;
    blocked.command("BLPOP list 0").await;
    gateway.until("gateway_connections", |count| count == 3).await;
    // Its element must not go to a client that is not there.
    drop(gone);
    gateway.until("gateway_clients", |count| count == 3).await;
    assert_eq!(free.say("RPUSH list a").await, ":1");
    assert_eq!(text(&blocked.reply().await), "[list a]");
    assert_eq!(blocked.say("GET k").await, "(nil)");
    blocked.command("BLPOP list 0").await;
    let id = gateway.client().await.say("CLIENT LIST").await;
    let id = id.lines().find_map(|line| line.strip_prefix("id=")?.split(' ').next()).unwrap().to_owned();
    let unblock = format!("CLIENT UNBLOCK {id}");
    while !free.say(&format!("CLIENT LIST ID {id}")).await.contains(" flags=b ") {}
    while free.say(&unblock).await == ":0" {}
    assert_eq!(text(&blocked.reply().await), "(nil)");
}

#[tokio::test]
async fn subscriptions_work_in_both_protocols_and_end() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let mut publisher = gateway.client().await;
    for resp3 in [false, true] {
        let mut subscriber = gateway.client().await;
        if resp3 {
            subscriber.hello3("").await;
        }
        assert_eq!(subscriber.say("SUBSCRIBE a b").await, "[subscribe a :1]");
        assert_eq!(text(&subscriber.reply().await), "[subscribe b :2]");
        assert_eq!(subscriber.say("PSUBSCRIBE c*").await, "[psubscribe c* :3]");
        assert_eq!(publisher.say("PUBLISH a hi").await, ":1");
        assert_eq!(text(&subscriber.reply().await), "[message a hi]");
        assert_eq!(publisher.say("PUBLISH cc ho").await, ":1");
        assert_eq!(text(&subscriber.reply().await), "[pmessage c* cc ho]");
        subscriber.command("UNSUBSCRIBE").await;
        subscriber.reply().await;
        subscriber.reply().await;
        assert_eq!(subscriber.say("PUNSUBSCRIBE c*").await, "[punsubscribe c* :0]");
        assert_eq!(subscriber.say("SET k v").await, "OK");
        let list = publisher.say("CLIENT LIST TYPE pubsub").await;
        assert_eq!(list, "", "it has gone back");
    }
}

#[tokio::test]
async fn tracking_reaches_its_client() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let (mut tracking, mut other) = (gateway.client().await, gateway.client().await);
    tracking.hello3("").await;
    assert_eq!(tracking.say("CLIENT TRACKING ON").await, "OK");
    tracking.call("GET k").await;
    assert_eq!(other.say("SET k v").await, "OK");
    assert_eq!(text(&tracking.reply().await), "[invalidate [k]]");
    assert_eq!(tracking.say("CLIENT TRACKING OFF").await, "OK");
    assert_eq!(tracking.say("GET k").await, "v");
}

#[tokio::test]
async fn silence_is_kept() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let mut client = gateway.client().await;
    for line in ["CLIENT REPLY OFF", "SET k v", "GET k"] {
        client.command(line).await;
    }
    assert_eq!(client.say("CLIENT REPLY ON").await, "OK");
    client.command("CLIENT REPLY SKIP").await;
    client.command("GET k").await;
    assert_eq!(client.say("GET k").await, "v");
    assert_eq!(client.say("RESET").await, "RESET");
    assert_eq!(client.say("GET k").await, "v");
}

#[tokio::test]
async fn large_values_pass_in_pieces() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    for tcp in [false, true] {
        let mut client = if tcp { gateway.tcp_client().await } else { gateway.client().await };
        let value: Vec<u8> = (0..8 << 20).map(|at: u32| (at % 251) as u8).collect();
        client.send(encode([&b"SET"[..], b"large", &value])).await;
        client.command("GET small").await;
        assert_eq!(text(&client.reply().await), "OK");
        assert_eq!(client.reply().await, Value::Nil);
        assert!(client.call("GET large").await.as_bytes() == Some(&value), "every byte is the same");
        assert_eq!(client.say("GET small").await, "(nil)");
    }
}

#[tokio::test]
async fn logins_are_checked_by_the_server_and_not_shared() {
    let (_server, url, _) = mock_with(Mock::new().requirepass("secret")).await;
    let gateway = gateway(&url, Share::Auto).await;
    let (mut stranger, mut user) = (gateway.tcp_client().await, gateway.client().await);
    let refusal = "-NOAUTH Authentication required.";
    assert_eq!(user.say("GET k").await, refusal);
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    assert_eq!(user.say("AUTH wrong").await, wrong);
    assert_eq!(user.say("GET k").await, refusal);
    assert_eq!(user.say("AUTH secret").await, "OK");
    assert_eq!(user.say("SET k v").await, "OK");
    assert_eq!(user.say("MULTI").await, "OK");
    assert_eq!(user.say("DISCARD").await, "OK");
    assert_eq!(stranger.say("GET k").await, refusal);
    assert_eq!(stranger.say("MULTI").await, refusal);
    assert_eq!(stranger.say("CLIENT LIST").await, refusal);
    assert_eq!(stranger.say("INFO gateway").await, refusal);
    assert!(stranger.say("CLIENT KILL ID 1").await.starts_with("-NOAUTH"));
    assert!(stranger.hello3("").await.as_map().is_none());
    let mut resp3 = gateway.client().await;
    assert_eq!(text(&resp3.hello3(" AUTH default wrong").await), wrong);
    assert!(resp3.hello3(" AUTH default secret SETNAME me").await.as_map().is_some());
    assert_eq!((resp3.say("GET k").await, resp3.say("CLIENT GETNAME").await), ("v".into(), "me".into()));
    assert_eq!(resp3.say("RESET").await, "RESET");
    assert_eq!(resp3.say("GET k").await, refusal);
    let authority = url.split_once("://").unwrap().1;
    let with_login =
        start(&config(&format!("emulated://:secret@{authority}/3"), Share::Auto, Limits::default())).await;
    let mut client = with_login.client().await;
    assert_eq!(client.say("GET k").await, "(nil)", "another database");
    assert_eq!((client.say("SELECT 0").await, client.say("GET k").await), ("OK".into(), "v".into()));
}

#[tokio::test]
async fn databases_are_kept_apart() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let (mut one, mut other) = (gateway.client().await, gateway.client().await);
    assert_eq!(one.say("SELECT 5").await, "OK");
    assert_eq!(one.say("SET k five").await, "OK");
    assert_eq!(other.say("GET k").await, "(nil)");
    assert_eq!(other.say("SELECT 99").await, "-ERR DB index is out of range");
    assert_eq!(other.say("SELECT x").await, "-ERR value is not an integer or out of range");
    assert_eq!(other.say("SET k zero").await, "OK");
    assert_eq!(one.say("MULTI").await, "OK");
    assert_eq!(one.say("GET k").await, "QUEUED");
    assert_eq!(one.say("EXEC").await, "[five]");
    assert_eq!(one.say("WATCH k").await, "OK");
    assert_eq!(one.say("SELECT 0").await, "OK");
    assert_eq!(one.say("UNWATCH").await, "OK");
    assert_eq!(one.say("GET k").await, "zero");
}

#[tokio::test]
async fn clients_are_listed_named_and_killed() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let (mut one, mut other) = (gateway.client().await, gateway.tcp_client().await);
    assert_eq!(one.say("CLIENT SETNAME one").await, "OK");
    assert_eq!(one.say("CLIENT GETNAME").await, "one");
    assert!(one.say("CLIENT SETNAME a\nb").await.starts_with("-ERR Client names cannot"));
    assert_eq!(one.say("CLIENT SETINFO lib-name tests").await, "OK");
    assert!(one.say("CLIENT SETINFO lib x").await.starts_with("-ERR Unrecognized option"));
    let list = other.say("CLIENT LIST").await;
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.contains("name=one ") && list.contains("lib-name=tests "), "{list}");
    assert!(list.contains(" cmd=client\n"), "{list}");
    assert!(other.say("CLIENT INFO").await.contains(" addr=127.0.0.1:"));
    let id = one.say("CLIENT ID").await[1..].to_owned();
    let own = other.say("CLIENT ID").await[1..].to_owned();
    assert_eq!(other.say(&format!("CLIENT LIST ID {own} {id}")).await.lines().count(), 2);
    assert_eq!(other.say(&format!("CLIENT LIST ID {id} 999")).await.lines().count(), 1);
    assert_eq!(other.say(&format!("CLIENT KILL ID {id} TYPE pubsub")).await, ":0");
    assert_eq!(other.say(&format!("CLIENT KILL ID {id}")).await, ":1");
    one.expect_end().await;
    assert_eq!(other.say("CLIENT KILL 1.2.3.4:5").await, "-ERR No such client");
    assert_eq!(other.say("CLIENT KILL SKIPME no").await, ":1");
    other.expect_end().await;
}

#[tokio::test]
async fn invalidations_are_redirected_to_a_client_without_state() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let (mut source, mut target) = (gateway.client().await, gateway.client().await);
    let _shared = server.accept().await;
    let id = target.say("CLIENT ID").await[1..].to_owned();

    source.command(&format!("CLIENT TRACKING ON REDIRECT {id}")).await;
    let mut to_source = server.accept_as("", 20).await;
    let mut to_target = server.accept_as("", 21).await;
    expect(&mut to_source, &encode("CLIENT TRACKING ON REDIRECT 21".split(' '))).await;
    to_source.write_all(b"+OK\r\n").await.unwrap();
    assert_eq!(text(&source.reply().await), "OK");
    to_target.write_all(b">2\r\n$10\r\ninvalidate\r\n_\r\n").await.unwrap();
    target.expect_bytes(b">2\r\n$10\r\ninvalidate\r\n_\r\n").await;
    source.command("CLIENT GETREDIR").await;
    expect(&mut to_source, &encode(["CLIENT", "GETREDIR"])).await;
    to_source.write_all(b":21\r\n").await.unwrap();
    assert_eq!(text(&source.reply().await), format!(":{id}"));

    source.command("CLIENT TRACKING OFF").await;
    expect(&mut to_source, &encode(["CLIENT", "TRACKING", "OFF"])).await;
    to_source.write_all(b"+OK\r\n").await.unwrap();
    assert_eq!(text(&source.reply().await), "OK");
    // Invalidations may still come on the target's connection: it gets no other client.
    let mut byte = [0];
    let end = timeout(PATIENCE, to_target.read(&mut byte)).await.expect("it is closed");
    assert_eq!(end.unwrap(), 0);
    source.command("CLIENT TRACKING ON REDIRECT 999").await;
    expect(&mut to_source, &encode("CLIENT TRACKING ON REDIRECT 9223372036854775807".split(' '))).await;
}

/// Else each client would get the reply to the command before its own, and a wrong password the OK of another.
#[tokio::test]
async fn a_connection_whose_first_replies_are_those_of_no_command_is_not_used_g2() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let mut client = gateway.client().await;
    client.command("GET k").await;
    for stray in ["+OK\r\n", ":1\r\n", "%0\r\n", "_\r\n"] {
        let mut stream = server.accept_raw().await;
        stream.write_all(stray.as_bytes()).await.unwrap();
        let login = [
            encode(["CLIENT", "SETNAME", "valkey-rdma-gateway"]),
            encode(["PING"]),
            encode(["CLIENT", "ID"]),
        ]
        .concat();
        expect(&mut stream, &login).await;
        // Its end may come as a reset.
        let _written = stream.write_all(b"+OK\r\n+PONG\r\n:7\r\n").await;
        let end = timeout(PATIENCE, stream.read(&mut [0])).await.expect("in time");
        assert_eq!(end.unwrap_or(0), 0, "{stray:?}: the gateway closes it");
    }
    let mut shared = server.accept().await;
    expect(&mut shared, &encode(["GET", "k"])).await;
    shared.write_all(b"$1\r\nv\r\n").await.unwrap();
    assert_eq!(text(&client.reply().await), "v");

    client.send(&encode(["AUTH", "default", "wrong"])).await;
    let mut checker = server.accept_raw().await;
    checker.write_all(b"+OK\r\n").await.unwrap();
    expect(&mut checker, &encode(["PING"])).await;
    assert_eq!(timeout(PATIENCE, checker.read(&mut [0])).await.expect("in time").unwrap_or(0), 0);
}
