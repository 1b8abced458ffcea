//! Clients and servers that end in the middle of a value.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use valkey_rdma_mock::{MockCluster, MockServer};

use super::{Wire, bounded, cut, gateway_with, pattern};
use crate::scripted::{Scripted, expect};
use crate::support::{encode, text};

/// The shared connection, which gets no login, and then that of a value.
async fn private(server: &Scripted) -> (TcpStream, TcpStream) {
    (server.accept_raw().await, server.accept_as("", 8).await)
}

#[tokio::test]
async fn a_client_whose_device_refuses_the_keys_ends_alone_d2() {
    let mock = MockServer::start().await;
    mock.set("k", pattern(2 << 20));
    let (gateway, addr) = gateway_with(mock.tcp_url(), |_| {}).await;
    let mut good = Wire::new(addr, &[0; 3 << 20]).await;
    for command in ["BLOB.GET k", "BLOB.SET other 2097152"] {
        let mut bad = Wire::new(addr, &[0; 2 << 20]).await;
        let mut remote = bad.exposed.remote();
        remote.rkey ^= 0x5a5a;
        bad.client.command(&format!("{command} {} {} {}", remote.rkey, remote.addr, remote.len)).await;
        bad.client.expect_end().await;
        assert!(good.say("BLOB.GET k @").await.starts_with("[:2097152 "));
    }
    assert_eq!(mock.get("other"), None, "nothing was stored");
    drop(good);
    gateway.until("gateway_direct_pinned_bytes", |bytes| bytes == 0).await;
}

#[tokio::test]
async fn a_client_that_leaves_ends_although_the_gateway_has_no_room_for_its_commands() {
    let mock = MockServer::start().await;
    mock.set("k", pattern(4 << 20));
    let (gateway, addr) = gateway_with(mock.tcp_url(), |_| {}).await;
    let mut wire = Wire::new(addr, &[0; 4 << 20]).await;
    let get = encode(wire.line("BLOB.GET k @").split(' '));
    wire.client.send(get.repeat(5000)).await;
    assert!(text(&wire.client.reply().await).starts_with("[:4194304 "));
    drop(wire);
    gateway.until("gateway_direct_pinned_bytes", |bytes| bytes == 0).await;
}

#[tokio::test]
async fn a_client_that_leaves_or_is_ended_does_not_wait_for_a_silent_server() {
    let server = Scripted::start().await;
    let (gateway, addr) = gateway_with(&server.url, |_| {}).await;
    let begun = async || {
        let mut wire = Wire::new(addr, &[0; 2 << 20]).await;
        wire.client.command(&wire.line("BLOB.GET k @")).await;
        wire
    };
    let serve = async || {
        let mut connection = server.accept_as("", 8).await;
        expect(&mut connection, &encode(["GET", "k"])).await;
        connection.write_all(&[&b"$2097152\r\n"[..], &[b'x'; 1_500_000]].concat()).await.unwrap();
        gateway.until("gateway_direct_pinned_bytes", |bytes| bytes > 0).await;
        connection
    };
    let wire = begun().await;
    let _shared = server.accept_raw().await;
    let _silent = serve().await;
    drop(wire);
    gateway.until("gateway_direct_pinned_bytes", |bytes| bytes == 0).await;
    let mut wire = begun().await;
    let _other = serve().await;
    drop(gateway);
    wire.client.expect_end().await;
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_a_set_stores_nothing_d6() {
    let server = Scripted::start().await;
    let (gateway, addr) = gateway_with(&server.url, |_| {}).await;
    let mut wire = Wire::new(addr, &pattern(32 << 20)).await;
    wire.client.command(&wire.line("BLOB.SET k 33554432 @")).await;
    let (_shared, mut connection) = private(&server).await;
    expect(&mut connection, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$33554432\r\n").await;
    expect(&mut connection, &pattern(1000)).await;
    drop(wire);
    gateway.until("gateway_direct_pinned_bytes", |bytes| bytes == 0).await;
    let mut rest = Vec::new();
    let read = bounded(connection.read_to_end(&mut rest)).await;
    assert!(read.is_err() || rest.len() < 32 << 20, "the command has no end");
}

#[tokio::test]
async fn a_server_that_ends_in_the_middle_of_a_get_refers_to_the_stream_and_the_next_call_works_d7() {
    let server = Scripted::start().await;
    let (_gateway, addr) = gateway_with(&server.url, |_| {}).await;
    let value = pattern(2 << 20);
    let mut wire = Wire::new(addr, &vec![0; value.len()]).await;
    wire.client.command(&wire.line("BLOB.GET k @")).await;
    let (_shared, mut connection) = private(&server).await;
    expect(&mut connection, &encode(["GET", "k"])).await;
    let head = format!("${}\r\n", value.len());
    connection.write_all(&[head.as_bytes(), &value[..1_500_000]].concat()).await.unwrap();
    cut(connection).await;
    let error = text(&wire.client.reply().await);
    assert!(error.starts_with("-NODIRECT the server was lost before the end of the value: "), "{error}");

    wire.client.command(&wire.line("BLOB.GET k @")).await;
    let mut connection = server.accept_as("", 9).await;
    expect(&mut connection, &encode(["GET", "k"])).await;
    connection.write_all(&[head.as_bytes(), &value, b"\r\n"].concat()).await.unwrap();
    assert!(text(&wire.client.reply().await).starts_with("[:2097152 "));
    assert!(wire.memory() == value);
}

/// Its client reads the value again over the stream, so no command is without its reply.
#[tokio::test]
async fn a_node_that_ends_in_the_middle_of_a_get_is_no_command_that_may_have_run_d7() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let (gateway, addr) = gateway_with("", |config| {
        (config.routes[0].servers, config.routes[0].cluster) = (mocks.urls(), true);
    })
    .await;
    let key = mocks.key_of(1, 0);
    let mut client = gateway.client().await;
    // Far more than the gateway and its connections can hold.
    let len = 64 << 20;
    client.send(&encode(["SETRANGE", &key, &(len - 1).to_string(), "x"])).await;
    client.expect_bytes(b":67108864\r\n").await;
    let mut wire = Wire::new(addr, &vec![0; len]).await;
    wire.client.command(&wire.line(&format!("BLOB.GET {key} @"))).await;
    gateway.until("gateway_direct_pinned_bytes", |bytes| bytes > 0).await;
    mocks.kill(1).await;
    let error = text(&wire.client.reply().await);
    assert!(error.starts_with("-NODIRECT the server was lost before the end of the value: "), "{error}");
    assert_eq!(gateway.info("gateway_commands_may_have_run").await, 0);
    assert_eq!(gateway.info("gateway_commands_not_sent").await, 0);
}

#[tokio::test]
async fn a_server_that_ends_in_the_middle_of_a_set_ends_the_client() {
    for early in ["", "-ERR Protocol error: invalid bulk length\r\n"] {
        let server = Scripted::start().await;
        let (_gateway, addr) = gateway_with(&server.url, |_| {}).await;
        let mut wire = Wire::new(addr, &pattern(32 << 20)).await;
        wire.client.command(&wire.line("BLOB.SET k 33554432 @")).await;
        let (_shared, mut connection) = private(&server).await;
        expect(&mut connection, b"*3\r\n$3\r\nSET\r\n").await;
        connection.write_all(early.as_bytes()).await.unwrap();
        if early.is_empty() {
            drop(connection);
        } else {
            cut(connection).await;
            wire.client.expect_bytes(early.as_bytes()).await;
        }
        wire.client.expect_end().await;
    }
}

#[tokio::test]
async fn other_clients_do_not_wait_behind_a_value() {
    let server = Scripted::start().await;
    let (_gateway, addr) = gateway_with(&server.url, |_| {}).await;
    let (mut large, mut small) = (Wire::new(addr, &[0; 1000]).await, Wire::new(addr, b"0").await);
    large.client.command(&large.line("BLOB.GET large @")).await;
    let mut shared = server.accept().await;
    let mut stalled = server.accept_as("", 8).await;
    expect(&mut stalled, &encode(["GET", "large"])).await;
    stalled.write_all(b"$900\r\nbegun").await.unwrap();
    small.client.command("GET small").await;
    expect(&mut shared, &encode(["GET", "small"])).await;
    shared.write_all(b"$1\r\nS\r\n").await.unwrap();
    small.client.expect_bytes(b"$1\r\nS\r\n").await;
    stalled.write_all(&[&[b'x'; 895][..], b"\r\n"].concat()).await.unwrap();
    large.client.expect_bytes(b"*2\r\n:900\r\n").await;
}

#[tokio::test]
async fn a_gateway_that_stops_ends_a_value_that_has_begun() {
    let server = Scripted::start().await;
    let (gateway, addr) = gateway_with(&server.url, |_| {}).await;
    let mut wire = Wire::new(addr, &[0; 1000]).await;
    wire.client.command(&wire.line("BLOB.GET k @")).await;
    let (_shared, mut connection) = private(&server).await;
    expect(&mut connection, &encode(["GET", "k"])).await;
    connection.write_all(b"$900\r\nbegun").await.unwrap();
    let stopped = tokio::spawn(gateway.gateway.shutdown());
    connection.write_all(&[&[b'x'; 895][..], b"\r\n"].concat()).await.unwrap();
    wire.client.expect_bytes(b"*2\r\n:900\r\n").await;
    bounded(stopped).await.unwrap();
}
