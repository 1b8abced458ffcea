//! RESET on a connection of its client's own: its end is seen whatever the server answers.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use valkey_rdma_gateway::Share;
use valkey_rdma_mock::Mock;

use crate::ends::{expect_any, private};
use crate::scripted::expect;
use crate::support::{PATIENCE, encode, gateway, mock_with};

const REFUSED: &[u8] = b"-ERR unknown command 'RESET'\r\n";

/// Reads the mark that follows a RESET whose reply cannot be counted. Returns the server's answer.
async fn answer_to_mark(connection: &mut TcpStream) -> Vec<u8> {
    expect(connection, b"*3\r\n$5\r\nHELLO\r\n$1\r\n2\r\n$16\r\n").await;
    let mut mark = [0; 18];
    timeout(PATIENCE, connection.read_exact(&mut mark)).await.expect("in time").unwrap();
    [b"-ERR Syntax error in HELLO option '", &mark[..16], b"'\r\n"].concat()
}

#[tokio::test]
async fn reset_with_arguments_is_refused_and_keeps_the_login() {
    let (_server, url, _) = mock_with(Mock::new().requirepass("secret")).await;
    let gateway = gateway(&url, Share::Auto).await;
    let mut client = gateway.client().await;
    assert_eq!(client.say("AUTH secret").await, "OK");
    for (line, reply) in [("GET k", "(nil)"), ("WATCH k", "OK"), ("MULTI", "OK")] {
        assert_eq!(client.say(line).await, reply);
        let refusal = client.say("RESET x").await;
        assert!(refusal.starts_with("-ERR wrong number of arguments"), "after {line}: {refusal}");
    }
    assert!(client.say("EXEC").await.starts_with("-EXECABORT"));
    assert_eq!(client.say("GET k").await, "(nil)");
}

/// CLIENT REPLY SKIP holds for the command after it.
#[tokio::test]
async fn a_client_goes_on_after_a_reset_without_a_reply() {
    let (_gateway, mut client, mut connection, mut shared) = private(&["CLIENT REPLY SKIP", "RESET"]).await;
    client.command("ECHO a").await;
    let answer = answer_to_mark(&mut connection).await;
    connection.write_all(&answer).await.unwrap();
    expect(&mut shared, &encode(["ECHO", "a"])).await;
    shared.write_all(b"$1\r\na\r\n").await.unwrap();
    client.expect_bytes(b"$1\r\na\r\n").await;
}

#[tokio::test]
async fn the_end_of_a_client_is_seen_while_its_reset_has_no_answer() {
    let (gateway, client, mut connection, _shared) = private(&["CLIENT REPLY OFF", "RESET"]).await;
    answer_to_mark(&mut connection).await;
    drop(client);
    assert!(!expect_any(&mut connection).await, "the gateway ends its side");
    drop(connection);
    gateway.until("gateway_clients", |count| count == 1).await;
}

/// Such as one that has another name for it.
#[tokio::test]
async fn a_client_keeps_its_state_if_the_server_refuses_reset() {
    let (_gateway, mut client, mut connection, _shared) = private(&["WATCH k", "RESET"]).await;
    let replies = [b"+OK\r\n", REFUSED].concat();
    connection.write_all(&replies).await.unwrap();
    client.expect_bytes(&replies).await;
    client.command("GET k").await;
    expect(&mut connection, &encode(["GET", "k"])).await;
    connection.write_all(b"$1\r\nv\r\n").await.unwrap();
    client.expect_bytes(b"$1\r\nv\r\n").await;
}

/// The error may be the reply to an earlier command, and the connection may have lost its login.
#[tokio::test]
async fn no_command_runs_where_the_login_is_not_known() {
    let (_gateway, mut client, mut connection, _shared) = private(&["READONLY", "RESET"]).await;
    client.command("GET k").await;
    let answer = answer_to_mark(&mut connection).await;
    let replies = [b"+OK\r\n", REFUSED].concat();
    connection.write_all(&[&replies[..], &answer].concat()).await.unwrap();
    client.expect_bytes(&replies).await;
    client.expect_end().await;
    assert!(!expect_any(&mut connection).await, "nothing follows");
}
