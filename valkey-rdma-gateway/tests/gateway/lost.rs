//! Lost servers: what is sent again, what waits, and which clients are closed. The rows of "When the server is away" of docs/gateway.md.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use valkey_rdma_gateway::Share;
use valkey_rdma_mock::{Mock, Reply};

use crate::scripted::{Scripted, expect, log_in};
use crate::support::{PATIENCE, Reserved, encode, gateway, in_front_of, mock_with, text};

#[tokio::test]
async fn a_client_whose_command_may_have_run_is_closed_and_others_are_served() {
    for line in ["SET k 1", "INCR k", "EVAL return 1 0", "MYMODULE.GET k", "AUTH pw", "PUBLISH c hi"] {
        let server = Scripted::start().await;
        let gateway = gateway(&server.url, Share::Auto).await;
        let (mut client, mut idle) = (gateway.client().await, gateway.client().await);
        client.command(line).await;
        let mut connections = vec![server.accept().await];
        // Scripts and logins have connections of their own.
        match line.split(' ').next() {
            Some("EVAL") => connections.push(server.accept().await),
            Some("AUTH") => connections.push(server.accept_checker().await),
            _ => {}
        }
        let mut connection = connections.pop().unwrap();
        expect(&mut connection, &encode(line.split(' '))).await;
        drop(connection);
        client.expect_end().await;
        assert_eq!(idle.say("CLIENT GETNAME").await, "(nil)", "{line}");
        gateway.until("gateway_commands_may_have_run", |count| count == 1).await;
    }
}

/// The server's last replies come before its end.
#[tokio::test]
async fn replies_that_came_before_the_loss_are_delivered() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let (mut unix, mut tcp) = (gateway.client().await, gateway.tcp_client().await);
    let pipeline = ["GET a", "INCR b", "GET c", "MGET d e"].map(|line| encode(line.split(' '))).concat();
    let mut connection = None;
    for client in [&mut unix, &mut tcp] {
        client.send(&pipeline).await;
        if connection.is_none() {
            connection = Some(server.accept().await);
        }
        expect(connection.as_mut().unwrap(), &pipeline).await;
    }
    // All of the first client, and two of four of the other one.
    let mut connection = connection.unwrap();
    connection.write_all(b"+a\r\n:1\r\n+c\r\n*0\r\n+a\r\n:2\r\n").await.unwrap();
    drop(connection);
    for expected in ["a", ":1", "c", "[]"] {
        assert_eq!(text(&unix.reply().await), expected);
    }
    for expected in ["a", ":2"] {
        assert_eq!(text(&tcp.reply().await), expected);
    }
    // Only reads are missing.
    let mut connection = server.accept().await;
    expect(&mut connection, &[encode(["GET", "c"]), encode(["MGET", "d", "e"])].concat()).await;
    connection.write_all(b"+c\r\n").await.unwrap();
    assert_eq!(text(&tcp.reply().await), "c");
    tcp.command("INCR f").await;
    expect(&mut connection, &encode(["INCR", "f"])).await;
    connection.write_all(b"*0\r\n").await.unwrap();
    drop(connection);
    assert_eq!(text(&tcp.reply().await), "[]");
    tcp.expect_end().await;
    assert_eq!(unix.say("CLIENT GETNAME").await, "(nil)");
}

#[tokio::test]
async fn reads_in_flight_are_sent_again_unless_their_client_is_closed() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let (mut one, mut other) = (gateway.client().await, gateway.client().await);
    let pipeline = ["GET a", "INCR b", "GET c"].map(|line| encode(line.split(' ')));
    one.send(pipeline.concat()).await;
    let mut connection = server.accept().await;
    expect(&mut connection, &pipeline.concat()).await;
    let reads = [encode(["GET", "f"]), encode(["MGET", "g", "h"])].concat();
    other.send(&reads).await;
    expect(&mut connection, &reads).await;
    drop(connection);
    one.expect_end().await;
    let mut connection = server.accept().await;
    expect(&mut connection, &reads).await;
    connection.write_all(b"+f\r\n*0\r\n").await.unwrap();
    assert_eq!([text(&other.reply().await), text(&other.reply().await)], ["f", "[]"]);
    gateway.until("gateway_commands_sent_again", |count| count == 2).await;
    gateway.until("gateway_commands_may_have_run", |count| count == 3).await;
}

/// It may be the read that ends the server's connections.
#[tokio::test]
async fn a_read_is_sent_again_once() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let mut client = gateway.client().await;
    client.command("GET k").await;
    for _ in 0..2 {
        let mut connection = server.accept().await;
        expect(&mut connection, &encode(["GET", "k"])).await;
    }
    client.expect_end().await;
}

#[tokio::test]
async fn a_read_that_was_sent_and_finds_no_server_again_may_have_run() {
    let server = Scripted::start().await;
    let gateway = in_front_of(&server.url, |limits| limits.offline_ms = 100).await;
    let mut client = gateway.client().await;
    client.command("GET k").await;
    let mut connection = server.accept().await;
    expect(&mut connection, &encode(["GET", "k"])).await;
    drop((connection, server));
    client.expect_end().await;
    gateway.until("gateway_commands_may_have_run", |count| count == 1).await;
}

/// Such a client has probably sent the same again, on another connection.
#[tokio::test]
async fn a_command_of_a_client_that_gave_up_in_an_outage_is_not_run() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let (mut impatient, mut patient) = (gateway.client().await, gateway.client().await);
    patient.command("GET a").await;
    let mut connection = server.accept().await;
    expect(&mut connection, &encode(["GET", "a"])).await;
    connection.write_all(b"+a\r\n").await.unwrap();
    assert_eq!(text(&patient.reply().await), "a");
    drop(connection);
    // The next connection does not log in yet.
    let connection = server.accept_raw().await;
    patient.command("INCR b").await;
    impatient.command("INCR c").await;
    patient.command("INCR d").await;
    // The gateway, in this runtime, reads what has arrived before it answers what arrives later.
    gateway.info("gateway_clients").await;
    impatient.stream.shutdown().await.unwrap();
    gateway.info("gateway_clients").await;
    let mut connection = log_in(connection, &[], "valkey-rdma-gateway", 7).await;
    expect(&mut connection, &[encode(["INCR", "b"]), encode(["INCR", "d"])].concat()).await;
    connection.write_all(b":1\r\n:2\r\n").await.unwrap();
    assert_eq!([text(&patient.reply().await), text(&patient.reply().await)], [":1", ":2"]);
    impatient.expect_end().await;
}

#[tokio::test]
async fn half_a_reply_ends_its_client() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let (mut one, mut other) = (gateway.client().await, gateway.client().await);
    one.command("GET a").await;
    let mut connection = server.accept().await;
    expect(&mut connection, &encode(["GET", "a"])).await;
    other.command("INCR b").await;
    expect(&mut connection, &encode(["INCR", "b"])).await;
    let mut half = b"$100000\r\n".to_vec();
    half.resize(50_000, b'x');
    connection.write_all(&half).await.unwrap();
    one.expect_bytes(&half).await;
    drop(connection);
    one.expect_end().await;
    other.expect_end().await;
}

/// All of them did not run.
#[tokio::test]
async fn a_client_is_closed_when_its_command_has_waited_for_too_long() {
    let reserved = Reserved::new();
    let gateway = in_front_of(&reserved.url(), |limits| limits.offline_ms = 200).await;
    let lines = [
        "GET k",
        "SET k v",
        "SELECT 3",
        "AUTH pw",
        "HELLO 3",
        "MULTI",
        "WATCH k",
        "BLPOP k 0",
        "SUBSCRIBE c",
        "MONITOR",
        "CLIENT TRACKING ON",
        "WAIT 1 0",
        "CLIENT PAUSE 1",
    ];
    for line in lines {
        let mut client = gateway.client().await;
        client.command(line).await;
        client.expect_end().await;
    }
    gateway.until("gateway_commands_not_sent", |count| count == lines.len() as u64).await;
}

#[tokio::test]
async fn commands_that_need_a_private_connection_wait_for_the_server() {
    let reserved = Reserved::new();
    // Longer than the test takes.
    let gateway = in_front_of(&reserved.url(), |limits| limits.offline_ms = 600_000).await;
    let lines = ["GET k", "MULTI", "WATCH k", "BLPOP l 0.01", "SUBSCRIBE c", "CLIENT TRACKING ON"];
    let expected = ["(nil)", "OK", "OK", "(nil)", "[subscribe c :1]", "OK"];
    let mut clients = Vec::new();
    for line in lines {
        let mut client = gateway.client().await;
        client.command(line).await;
        clients.push(client);
    }
    // Each attempt fails, and none of them is answered for it.
    gateway.until("gateway_connect_failures", |count| count > 20).await;
    let _server = reserved.serve(Mock::new()).await;
    for (client, expected) in clients.iter_mut().zip(expected) {
        assert_eq!(text(&client.reply().await), expected);
    }
    assert_eq!(clients[1].say("INCR k").await, "QUEUED");
    assert_eq!(clients[1].say("EXEC").await, "[:1]");
}

/// Directly connected, ioredis waits for the end of LOADING when it connects. Behind a gateway it stays connected.
#[tokio::test]
async fn commands_wait_until_the_server_has_read_its_data() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let (mut shared, mut private) = (gateway.client().await, gateway.client().await);
    shared.command("INCR k").await;
    private.command("WATCH k").await;
    let loading = b"-LOADING Valkey is loading the dataset in memory\r\n";
    for line in ["INCR k", "WATCH k"] {
        let mut connection = server.accept_raw().await;
        let name = if line == "WATCH k" { "" } else { "valkey-rdma-gateway" };
        let set_name = encode(["CLIENT", "SETNAME", name]);
        expect(&mut connection, &[set_name, encode(["PING"]), encode(["CLIENT", "ID"])].concat()).await;
        connection.write_all(&[b"+OK\r\n", &loading[..], b":7\r\n"].concat()).await.unwrap();
        // It asks again on the same connection, because each one that ends costs the server memory.
        for _ in 0..2 {
            expect(&mut connection, &encode(["PING"])).await;
            connection.write_all(loading).await.unwrap();
        }
        expect(&mut connection, &encode(["PING"])).await;
        connection.write_all(b"+PONG\r\n").await.unwrap();
        expect(&mut connection, &encode(line.split(' '))).await;
        connection.write_all(b"+OK\r\n").await.unwrap();
        let client = if line == "WATCH k" { &mut private } else { &mut shared };
        assert_eq!(text(&client.reply().await), "OK");
    }
}

#[tokio::test]
async fn a_client_of_a_server_that_reads_its_data_for_too_long_is_closed() {
    let mock = Mock::new();
    mock.on("PING").error("LOADING Valkey is loading the dataset in memory");
    let (_server, url, _) = mock_with(mock).await;
    let gateway = in_front_of(&url, |limits| limits.offline_ms = 100).await;
    for line in ["GET k", "MULTI"] {
        let mut client = gateway.client().await;
        client.command(line).await;
        client.expect_end().await;
    }
    gateway.until("gateway_commands_not_sent", |count| count == 2).await;
}

/// Such a client has probably sent the same again, on another connection.
#[tokio::test]
async fn a_private_connection_is_not_made_for_a_client_that_gave_up() {
    let reserved = Reserved::new();
    let gateway = in_front_of(&reserved.url(), |limits| limits.offline_ms = 600_000).await;
    let (mut impatient, mut patient) = (gateway.client().await, gateway.client().await);
    for client in [&mut impatient, &mut patient] {
        client.send([encode(["MULTI"]), encode(["INCR", "k"]), encode(["EXEC"])].concat()).await;
    }
    gateway.until("gateway_connect_failures", |count| count > 10).await;
    impatient.stream.shutdown().await.unwrap();
    impatient.expect_end().await;
    gateway.until("gateway_commands_not_sent", |count| count == 1).await;
    let _server = reserved.serve(Mock::new()).await;
    for expected in ["OK", "QUEUED", "[:1]"] {
        assert_eq!(text(&patient.reply().await), expected);
    }
}

/// An element that the server removed for it would be lost.
#[tokio::test]
async fn a_client_that_gave_up_while_the_server_was_not_ready_takes_no_element() {
    let server = Scripted::start().await;
    let gateway = in_front_of(&server.url, |limits| limits.offline_ms = 600_000).await;
    let mut client = gateway.client().await;
    client.command("BLPOP k 0").await;
    let (_shared, mut private) = (server.accept().await, server.accept_raw().await);
    client.stream.shutdown().await.unwrap();
    client.expect_end().await;
    gateway.until("gateway_commands_not_sent", |count| count == 1).await;
    // Nothing comes behind the login.
    let mut rest = Vec::new();
    timeout(PATIENCE, private.read_to_end(&mut rest)).await.expect("in time").unwrap();
    assert!(!rest.windows(5).any(|word| word == b"BLPOP"), "{}", rest.escape_ascii());
}

#[tokio::test]
async fn a_stop_does_not_wait_for_the_server_of_a_client_without_a_connection() {
    let reserved = Reserved::new();
    let gateway = in_front_of(&reserved.url(), |limits| limits.offline_ms = 600_000).await;
    let mut client = gateway.client().await;
    client.command("MULTI").await;
    gateway.until("gateway_connect_failures", |count| count > 2).await;
    timeout(PATIENCE, gateway.gateway.shutdown()).await.expect("in time");
    client.expect_end().await;
}

#[tokio::test]
async fn a_command_does_not_wait_for_the_end_of_an_attempt_to_connect() {
    let server = Scripted::start().await;
    let url = format!("{}?timeout=60m", server.url);
    let gateway = in_front_of(&url, |limits| limits.offline_ms = 100).await;
    for line in ["GET k", "MULTI"] {
        let mut client = gateway.client().await;
        client.command(line).await;
        client.expect_end().await;
    }
    // The attempt goes on, and serves the command that comes next or, if login takes long here, a later one.
    let serve = async {
        let mut connection = server.accept().await;
        expect(&mut connection, &encode(["GET", "k"])).await;
        connection.write_all(b"$1\r\nv\r\n").await.unwrap();
        connection
    };
    let ask = async {
        loop {
            let mut client = gateway.client().await;
            client.command("GET k").await;
            if let Some(reply) = client.try_reply().await {
                return text(&reply);
            }
        }
    };
    let (_connection, reply) = tokio::join!(serve, ask);
    assert_eq!(reply, "v");
}

#[tokio::test]
async fn the_loss_of_a_private_connection_ends_its_client() {
    let (server, _, url) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let mut plain = gateway.client().await;
    assert_eq!(plain.say("GET k").await, "(nil)");
    let mut private = Vec::new();
    for lines in [
        &["SUBSCRIBE a"][..],
        &["WATCH k"],
        &["MULTI", "INCR k"],
        &["MONITOR"],
        &["CLIENT NO-EVICT ON"],
        // These have no reply.
        &["XREAD BLOCK 0 STREAMS s 0"],
        &["BLPOP l 0"],
    ] {
        let mut client = gateway.client().await;
        let has_reply = |line: &str| !line.contains("BLPOP") && !line.contains("BLOCK");
        for line in lines {
            match has_reply(line) {
                true => drop(client.call(line).await),
                false => client.command(line).await,
            }
        }
        private.push(client);
    }
    let connections = private.len() as u64 + 1;
    gateway.until("gateway_connections", |count| count == connections).await;
    drop(server);
    for client in &mut private {
        let mut rest = Vec::new();
        // MONITOR reports commands, and the gateway has not noticed the end yet. No error comes before the end.
        while let Some(reply) = client.try_reply().await {
            rest.push(text(&reply));
        }
        assert!(!rest.iter().any(|reply| reply.starts_with('-')), "{rest:?}");
    }
    assert_eq!(plain.say("CLIENT GETNAME").await, "(nil)", "its connection is kept");
}

/// A new connection would not help: the error says what does.
#[tokio::test]
async fn without_room_a_client_reads_the_reason_and_stays_connected() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = in_front_of(&url, |limits| limits.upstreams = 2).await;
    let (mut first, mut client) = (gateway.client().await, gateway.client().await);
    assert_eq!(first.say("WATCH k").await, "OK");
    let not_sent = "NOUPSTREAM the command was not sent: all 2 connections";
    for line in ["BLPOP k 0", "SUBSCRIBE c", "WATCH k"] {
        let reply = client.say(line).await;
        assert!(reply.starts_with(&format!("-{not_sent}")), "{line}: {reply}");
    }
    // A transaction fails as one that the server aborts, so that clients know what to do.
    assert_eq!(client.say("MULTI").await, "OK");
    for (line, answer) in [
        ("SET k v", format!("-{not_sent}")),
        ("CLIENT GETNAME", format!("-{not_sent}")),
        ("DISCARD x", format!("-{not_sent}")),
        ("EXEC", format!("-EXECABORT Transaction discarded: {not_sent}")),
    ] {
        let reply = client.say(line).await;
        assert!(reply.starts_with(&answer), "{line}: {reply}");
    }
    assert_eq!(client.say("GET k").await, "(nil)");
}

/// Its commands do not run on the private connection that other clients want it to have.
#[tokio::test]
async fn the_client_of_a_failed_transaction_gets_no_redirected_invalidations() {
    let mock = Mock::new();
    mock.on("CLIENT TRACKING").reply(Reply::OK);
    let (_server, _, url) = mock_with(mock).await;
    let gateway = in_front_of(&url, |limits| limits.upstreams = 8).await;
    let mut others = Vec::new();
    for _ in 0..6 {
        let mut other = gateway.client().await;
        assert_eq!(other.say("WATCH k").await, "OK");
        others.push(other);
    }
    let mut client = gateway.client().await;
    assert_eq!(client.say("MULTI").await, "OK");
    for other in &mut others {
        assert_eq!(other.say("UNWATCH").await, "OK");
    }
    assert_eq!(others[0].say("CLIENT TRACKING ON REDIRECT 7").await, "OK");
    assert!(client.say("SET k v").await.starts_with("-NOUPSTREAM"));
    assert!(client.say("EXEC").await.starts_with("-EXECABORT"));
    assert_eq!(client.say("GET k").await, "(nil)");
    assert_eq!(client.say("CLIENT ID").await, ":7");
}
