//! Lost servers: what is sent again, what may have run, and what waits.

use tokio::io::AsyncWriteExt;
use valkey_rdma_gateway::Share;
use valkey_rdma_mock::Mock;
use valkey_rdma_resp::Value;

use crate::scripted::{Scripted, expect, log_in};
use crate::support::{encode, gateway, in_front_of, mock_with, text};

#[tokio::test]
async fn a_lost_server_answers_what_may_have_run_and_serves_the_rest() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let mut client = gateway.client().await;
    client.command("SET k 1").await;
    let mut connection = server.accept().await;
    expect(&mut connection, &encode(["SET", "k", "1"])).await;
    drop(connection);
    let reply = client.reply().await;
    let lost = text(&reply);
    assert!(lost.starts_with("-UPSTREAMLOST") && lost.ends_with("the command may have run"), "{lost}");
    client.command("GET k").await;
    let mut connection = server.accept().await;
    expect(&mut connection, &encode(["GET", "k"])).await;
    connection.write_all(b"$1\r\n1\r\n").await.unwrap();
    assert_eq!(text(&client.reply().await), "1");
}

/// A read that is sent again follows the commands of its client that are not, so those must come before it.
#[tokio::test]
async fn reads_in_flight_are_sent_again_unless_a_write_of_their_client_follows() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let (mut one, mut other) = (gateway.client().await, gateway.client().await);
    let pipeline = ["GET a", "INCR b", "GET c", "MGET d e"].map(|line| encode(line.split(' ')));
    one.send(pipeline.concat()).await;
    let mut connection = server.accept().await;
    expect(&mut connection, &pipeline.concat()).await;
    other.command("GET f").await;
    expect(&mut connection, &encode(["GET", "f"])).await;
    connection.write_all(b"$1\r\na\r\n").await.unwrap();
    assert_eq!(text(&one.reply().await), "a");
    drop(connection);

    assert!(text(&one.reply().await).starts_with("-UPSTREAMLOST"), "INCR may have run");
    let mut connection = server.accept().await;
    expect(&mut connection, &pipeline[2..].concat()).await;
    expect(&mut connection, &encode(["GET", "f"])).await;
    connection.write_all(b"+c\r\n*0\r\n+f\r\n").await.unwrap();
    assert_eq!(text(&one.reply().await), "c");
    assert_eq!(one.reply().await, Value::Array(Vec::new()));
    assert_eq!(text(&other.reply().await), "f");
    gateway.until("gateway_commands_sent_again", |count| count == 3).await;
    gateway.until("gateway_commands_may_have_run", |count| count == 1).await;
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
    let reply = client.reply().await;
    assert!(text(&reply).starts_with("-UPSTREAMLOST"), "{reply:?}");
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
    let reply = client.reply().await;
    let lost = text(&reply);
    assert!(lost.starts_with("-UPSTREAMLOST") && lost.ends_with("the command may have run"), "{lost}");
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
    // It may have closed one side only.
    let reply = impatient.reply().await;
    assert!(text(&reply).starts_with("-NOUPSTREAM the command was not sent: its client closed"), "{reply:?}");
    impatient.expect_end().await;
}

#[tokio::test]
async fn half_a_reply_ends_its_client_and_no_other() {
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
    assert!(text(&other.reply().await).starts_with("-UPSTREAMLOST"));
}

#[tokio::test]
async fn without_a_server_commands_wait_for_a_while() {
    let server = Scripted::start().await;
    let url = server.url.clone();
    drop(server);
    let gateway = in_front_of(&url, |limits| limits.offline_ms = 300).await;
    let mut client = gateway.client().await;
    let not_sent = "NOUPSTREAM the command was not sent: ";
    for line in ["GET k", "SELECT 3", "WATCH k"] {
        let reply = client.say(line).await;
        assert!(reply.starts_with(&format!("-{not_sent}")), "{line}: {reply}");
    }
    // A transaction fails as one that the server aborts, so that clients know what to do.
    assert_eq!(client.say("MULTI").await, "OK");
    for (line, answer) in [
        ("SET k v", format!("-{not_sent}")),
        ("CLIENT GETNAME", format!("-{not_sent}")),
        ("EXEC", format!("-EXECABORT Transaction discarded: {not_sent}")),
    ] {
        let reply = client.say(line).await;
        assert!(reply.starts_with(&answer), "{line}: {reply}");
    }
    assert_eq!(client.say("CLIENT GETNAME").await, "(nil)");
}

#[tokio::test]
async fn a_command_does_not_wait_for_the_end_of_an_attempt_to_connect() {
    let server = Scripted::start().await;
    let url = format!("{}?timeout=60m", server.url);
    let gateway = in_front_of(&url, |limits| limits.offline_ms = 100).await;
    let mut client = gateway.client().await;
    let reply = client.say("GET k").await;
    assert!(reply.starts_with("-NOUPSTREAM the command was not sent: there is no connection"), "{reply}");

    // The attempt goes on, and serves the command that comes next or, if login takes long here, a later one.
    let serve = async {
        let mut connection = server.accept().await;
        expect(&mut connection, &encode(["GET", "k"])).await;
        connection.write_all(b"$1\r\nv\r\n").await.unwrap();
        connection
    };
    let ask = async {
        loop {
            let reply = client.say("GET k").await;
            if !reply.starts_with("-NOUPSTREAM") {
                return reply;
            }
        }
    };
    let (mut connection, reply) = tokio::join!(serve, ask);
    assert_eq!(reply, "v");

    // The error says that a connection was lost.
    client.command("INCR k").await;
    expect(&mut connection, &encode(["INCR", "k"])).await;
    drop(connection);
    assert!(text(&client.reply().await).starts_with("-UPSTREAMLOST"));
    let reply = client.say("GET k").await;
    assert!(reply.starts_with("-NOUPSTREAM the command was not sent: the connection to"), "{reply}");
}

#[tokio::test]
async fn lost_state_ends_its_client() {
    let (server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let (mut subscriber, mut blocked, mut plain) =
        (gateway.client().await, gateway.client().await, gateway.client().await);
    subscriber.say("SUBSCRIBE a").await;
    assert_eq!(plain.say("GET k").await, "(nil)");
    blocked.command("XREAD BLOCK 0 STREAMS s 0").await;
    gateway.until("gateway_connections", |count| count == 3).await;
    drop(server);
    subscriber.expect_end().await;
    assert!(blocked.say("CLIENT GETNAME").await.starts_with("-UPSTREAMLOST"));
    assert_eq!(text(&blocked.reply().await), "(nil)", "its connection is kept");
    assert_eq!(plain.say("CLIENT GETNAME").await, "(nil)", "its connection is kept");
}
