//! Clients of which it is not known how many replies are missing: after CLIENT REPLY, MONITOR, READONLY and the like, and in replication.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use valkey_rdma_gateway::Share;
use valkey_rdma_mock::Mock;

use crate::ends::{end, expect_any, private};
use crate::scripted::{Scripted, expect, log_in};
use crate::support::{PATIENCE, encode, gateway, mock_with, socket_path, text};

const REPLIES: &[u8] = b"+OK\r\n$1\r\nv\r\n";

#[tokio::test]
async fn a_client_has_the_last_replies_before_its_end() {
    for first in ["READONLY", "CLIENT CAPA redirect", "REPLCONF listening-port 1"] {
        for stop in [true, false] {
            let (gateway, mut client, mut connection, _shared) = private(&[first, "GET k"]).await;
            let _gateway = end(stop, gateway, &mut client).await;
            assert!(!expect_any(&mut connection).await, "the gateway ends its side");
            connection.write_all(REPLIES).await.unwrap();
            drop(connection);
            client.expect_bytes(REPLIES).await;
            client.expect_end().await;
        }
    }
}

#[tokio::test]
async fn a_client_has_earlier_replies_before_the_error_about_a_broken_command() {
    let (_gateway, mut client, mut connection, _shared) = private(&["READONLY", "GET k"]).await;
    client.send(b"*1\r\n:1\r\n").await;
    assert!(!expect_any(&mut connection).await, "the gateway ends its side");
    connection.write_all(REPLIES).await.unwrap();
    drop(connection);
    client.expect_bytes(REPLIES).await;
    assert_eq!(text(&client.reply().await), "-ERR Protocol error: expected '$', got ':'");
    client.expect_end().await;
}

#[tokio::test]
async fn commands_without_replies_run_although_their_client_has_gone() {
    let path = socket_path();
    let server = UnixListener::bind(&path).unwrap();
    let gateway = gateway(&format!("unix://{}", path.display()), Share::Auto).await;
    // Not over TLS, where the end of a client that is dropped is a cut.
    let mut client = gateway.owner().await;
    let silence = encode(["CLIENT", "REPLY", "OFF"]);
    client.send(&silence).await;
    let _shared = log_in(accept(&server).await, &[], "valkey-rdma-gateway", 7).await;
    let mut connection = log_in(accept(&server).await, &[], "", 8).await;
    // More than the system keeps for the server, and less than the gateway does.
    let commands = encode(["SET", "k", &"v".repeat(1000)]).repeat(700);
    client.send(&commands).await;
    drop(client);
    // The gateway, in this runtime, reads what has arrived before it answers what arrives later.
    gateway.info("gateway_clients").await;
    let mut received = Vec::new();
    timeout(PATIENCE, connection.read_to_end(&mut received)).await.expect("in time").unwrap();
    assert!(received == [silence, commands].concat(), "{} bytes have arrived", received.len());
    std::fs::remove_file(&path).unwrap();
}

async fn accept(server: &UnixListener) -> UnixStream {
    timeout(PATIENCE, server.accept()).await.expect("in time").unwrap().0
}

/// What follows the reply to REPLCONF is not RESP.
#[tokio::test]
async fn replies_to_the_gateway_do_not_reach_a_replica() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let (mut named, mut replica) = (gateway.client().await, gateway.client().await);
    assert_eq!(named.say("CLIENT SETNAME x").await, "OK");
    let commands = [encode(["WATCH", "k"]), encode(["UNWATCH"])].concat();
    named.send(&commands).await;
    let _shared = server.accept().await;
    let mut connection = server.accept_as("x", 8).await;
    expect(&mut connection, &commands).await;
    connection.write_all(b"+OK\r\n+OK\r\n").await.unwrap();
    named.expect_bytes(b"+OK\r\n+OK\r\n").await;
    assert_eq!(named.say("CLIENT GETNAME").await, "x", "it has given the connection back");

    let replconf = encode(["REPLCONF", "capa", "eof"]);
    replica.send(&replconf).await;
    expect(&mut connection, &[encode(["CLIENT", "SETNAME", ""]), replconf].concat()).await;
    connection.write_all(b"+OK\r\n+OK\r\n$3\r\nraw").await.unwrap();
    replica.expect_bytes(b"+OK\r\n$3\r\nraw").await;
}

#[tokio::test]
async fn the_end_after_quit_is_not_a_lost_connection() {
    let (_server, rdma, tcp) = mock_with(Mock::new()).await;
    for url in [rdma, tcp] {
        let gateway = gateway(&url, Share::Auto).await;
        for line in ["SUBSCRIBE c", "MONITOR", "MULTI"] {
            let mut client = gateway.client().await;
            client.call(line).await;
            assert_eq!(client.say("QUIT").await, "OK", "after {line}");
            client.expect_end().await;
        }
        assert_eq!(gateway.info("gateway_connections_lost").await, 0);
    }
}

/// Over RDMA, a connection is cleaned for its next client, and RESET does not end this state.
#[tokio::test]
async fn a_connection_with_capabilities_of_its_client_has_no_other_one() {
    let mock = Mock::new();
    let marks = mock.on("HELLO");
    let (_server, url, _) = mock_with(mock).await;
    let gateway = gateway(&url, Share::Auto).await;
    let (mut first, mut second) = (gateway.client().await, gateway.client().await);
    first.call("CLIENT CAPA redirect").await;
    let id = first.say("CLIENT ID").await;
    assert_eq!(first.say("RESET").await, "RESET");
    // That of the client's RESET, and that of the gateway's.
    let cleaned = async {
        while marks.matched() < 2 {
            gateway.info("gateway_connections").await;
        }
    };
    timeout(PATIENCE, cleaned).await.expect("in time");
    // The gateway, in this runtime, reads what has arrived before it answers what arrives later.
    gateway.info("gateway_connections").await;
    assert_eq!(second.say("MULTI").await, "OK");
    assert_eq!(second.say("CLIENT ID").await, "QUEUED");
    assert_ne!(second.say("EXEC").await, format!("[{id}]"));
}
