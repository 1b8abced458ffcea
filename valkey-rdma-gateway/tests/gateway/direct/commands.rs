//! The commands `BLOB.GET` and `BLOB.SET`, byte by byte.

use valkey_rdma_mock::{Mock, MockCluster, MockServer};
use valkey_rdma_server::{DeviceKind, Server, TransportConfig};
use valkey_rdma_transport::Stream;

use super::{Wire, gateway_with, pattern};
use crate::support::{Client, encode, text};

#[tokio::test]
async fn without_ranges_the_commands_are_get_and_set() {
    let mock = MockServer::start().await;
    let mocks = MockCluster::start(3).await.expect("free ports");
    let (_one, one) = gateway_with(mock.tcp_url(), |_| {}).await;
    let (_all, all) = gateway_with("", |config| {
        (config.routes[0].servers, config.routes[0].cluster) = (mocks.urls(), true);
    })
    .await;
    for addr in [one, all] {
        let mut wire = Wire::new(addr, b"0123").await;
        for (command, reply) in [
            ("BLOB.SET k data", "OK"),
            ("blob.get k", "data"),
            ("GET k", "data"),
            ("BLOB.GET none", "(nil)"),
            ("RPUSH list a", ":1"),
            ("BLOB.GET list", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("DEL list", ":1"),
            ("BLOB.GET", "-ERR wrong number of arguments for 'get' command"),
            ("BLOB.SET k", "-ERR wrong number of arguments for 'set' command"),
            ("MULTI", "OK"),
            ("BLOB.GET k", "QUEUED"),
            ("EXEC", "[data]"),
            ("BLOB.GET k 1", "-ERR syntax error: a range of memory is a key, an address and a length"),
            ("BLOB.SET k 1 2", "-ERR syntax error: a range of memory is a key, an address and a length"),
            ("BLOB.SET k x @", "-ERR value is not an integer or out of range"),
            ("BLOB.SET k -1 @", "-ERR value is not an integer or out of range"),
            ("BLOB.SET k 5 @", "-ERR the value has 5 bytes, and the ranges have 4"),
            ("BLOB.SET k 3 @", "OK"),
            ("GET k", "012"),
        ] {
            assert_eq!(wire.say(command).await, reply, "{command}");
        }
        // Longer than what is kept of a command.
        let value = pattern(1 << 20);
        wire.client
            .send([encode([&b"BLOB.SET"[..], b"k", &value]), encode(["BLOB.GET", "k"])].concat())
            .await;
        assert_eq!(text(&wire.client.reply().await), "OK");
        assert!(wire.client.reply().await.as_bytes() == Some(&value[..]));
    }
}

#[tokio::test]
async fn many_commands_are_carried_out_in_order_however_many_have_come() {
    let mock = MockServer::start().await;
    let (_gateway, addr) = gateway_with(mock.tcp_url(), |_| {}).await;
    let mut wire = Wire::new(addr, b"01").await;
    // More than the gateway keeps of commands.
    const COUNT: usize = 2000;
    let get = encode(wire.line("BLOB.GET k @").split(' '));
    let set = encode(wire.line("BLOB.SET k 2 @").split(' '));
    wire.client.send([set, get.repeat(COUNT), encode(["STRLEN", "k"])].concat()).await;
    assert_eq!(text(&wire.client.reply().await), "OK");
    let placed = format!("[:2 :{}]", crc32c::crc32c(b"01"));
    for _ in 0..COUNT {
        assert_eq!(text(&wire.client.reply().await), placed);
    }
    assert_eq!(text(&wire.client.reply().await), ":2");
}

#[tokio::test]
async fn a_command_may_name_thousands_of_ranges() {
    let mock = MockServer::start().await;
    let (_gateway, addr) = gateway_with(mock.tcp_url(), |_| {}).await;
    let value = pattern(5000);
    let mut wire = Wire::new(addr, &value).await;
    let exposed = wire.exposed.remote();
    let ranges: Vec<_> = (0..5000).map(|at| format!("{} {} 1", exposed.rkey, exposed.addr + at)).collect();
    let ranges = ranges.join(" ");
    assert_eq!(wire.say(&format!("BLOB.SET k 5000 {ranges}")).await, "OK");
    assert!(mock.get("k").unwrap() == value);
    assert!(wire.say(&format!("BLOB.GET k {ranges}")).await.starts_with("[:5000 "));
    // A client that has state sends it in pieces, too.
    assert_eq!(wire.say("WATCH other").await, "OK");
    assert!(wire.say(&format!("BLOB.GET k {ranges}")).await.starts_with("[:5000 "));
    assert_eq!(wire.say("UNWATCH").await, "OK");
    let too_long = format!("BLOB.GET k {}", [&*ranges; 20].join(" "));
    // It may be closed before it has sent all of that.
    let _closed = wire.client.stream_send(&encode(too_long.split(' '))).await;
    assert_eq!(text(&wire.client.reply().await), "-ERR Protocol error: invalid bulk length");
    wire.client.expect_end().await;
}

#[tokio::test]
async fn in_front_of_a_cluster_a_command_may_not_name_more_ranges_although_others_may_be_longer() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let (_gateway, addr) = gateway_with("", |config| {
        (config.routes[0].servers, config.routes[0].cluster) = (mocks.urls(), true);
    })
    .await;
    let mut wire = Wire::new(addr, b"0123").await;
    let too_long =
        encode(["BLOB.GET", "k"].into_iter().chain([["12345"; 3]; 40_000].as_flattened().iter().copied()));
    // It may be closed before it has sent all of that.
    let _closed = wire.client.stream_send(&too_long).await;
    assert_eq!(text(&wire.client.reply().await), "-ERR Protocol error: invalid bulk length");
    wire.client.expect_end().await;
}

#[tokio::test]
async fn inside_of_a_transaction_the_server_refuses_them() {
    let mock = MockServer::start().await;
    let (_gateway, addr) = gateway_with(mock.tcp_url(), |_| {}).await;
    let mut wire = Wire::new(addr, b"0123").await;
    assert_eq!(wire.say("MULTI").await, "OK");
    let queued = wire.say("BLOB.SET k 4 @").await;
    let ended = wire.say("EXEC").await;
    assert!(queued.starts_with('-') || ended.contains("-ERR"), "{queued}, {ended}");
    assert_eq!(wire.say("EXISTS k").await, ":0");
}

#[tokio::test]
async fn login_and_database_are_those_of_the_client() {
    let mock = MockServer::start().await;
    let (_gateway, addr) = gateway_with(mock.tcp_url(), |_| {}).await;
    let mut wire = Wire::new(addr, b"0123").await;
    for (command, reply) in [
        ("SELECT 3", "OK"),
        ("BLOB.SET k 4 @", "OK"),
        ("SELECT 0", "OK"),
        ("BLOB.GET k @", "(nil)"),
        ("SELECT 3", "OK"),
        ("STRLEN k", ":4"),
    ] {
        assert_eq!(wire.say(command).await, reply, "{command}");
    }
    wire.client.hello3("").await;
    assert_eq!(wire.say("BLOB.GET none @").await, "(nil)", "RESP3 has another null");
}

#[tokio::test]
async fn a_client_that_caches_is_referred_to_the_stream_d7() {
    let mock = MockServer::start().await;
    let (_gateway, addr) = gateway_with(mock.tcp_url(), |_| {}).await;
    let mut wire = Wire::new(addr, b"0123").await;
    wire.client.hello3("").await;
    assert_eq!(wire.say("CLIENT TRACKING ON").await, "OK");
    let refusal = "-NODIRECT the client caches what it reads: CLIENT TRACKING is on";
    assert_eq!(wire.say("BLOB.SET k 4 @").await, refusal);
    assert_eq!(wire.say("CLIENT TRACKING OFF").await, "OK");
    assert_eq!(wire.say("BLOB.SET k 4 @").await, "OK");
}

/// Others than those of the client that pins it.
#[tokio::test]
async fn a_client_for_which_there_is_no_memory_is_referred_to_the_stream_d7() {
    let mock = MockServer::start().await;
    let (gateway, addr) =
        gateway_with(mock.tcp_url(), |config| config.limits.direct_bytes_total = 1 << 20).await;
    let (mut one, mut other) = (Wire::new(addr, b"0123").await, Wire::new(addr, b"4567").await);
    assert_eq!(one.say("BLOB.SET k 4 @").await, "OK");
    let refusal =
        "-NODIRECT direct transfers of other clients take up limits.direct_bytes_total = 1048576 bytes";
    assert_eq!(other.say("BLOB.SET k 4 @").await, refusal);
    assert_eq!(one.say("BLOB.GET k @").await, format!("[:4 :{}]", crc32c::crc32c(b"0123")));
    drop(one);
    gateway.until("gateway_direct_pinned_bytes", |bytes| bytes == 0).await;
    assert_eq!(other.say("BLOB.SET k 4 @").await, "OK");
}

#[tokio::test]
async fn a_client_that_has_not_asked_is_referred_to_the_stream_d7() {
    let mock = MockServer::start().await;
    let (gateway, addr) = gateway_with(mock.tcp_url(), |_| {}).await;
    let stream = Stream::connect(DeviceKind::Emulated, addr, &TransportConfig::default()).await.unwrap();
    let mut plain = Client::new(stream);
    assert!(
        plain.say("BLOB.GET k 1 2 3").await.starts_with("-NODIRECT this connection has no direct transfers")
    );
    assert_eq!(plain.say("BLOB.GET k").await, "(nil)");
    // Other listeners pass all on: the mock knows the command.
    assert!(
        gateway
            .client()
            .await
            .say("BLOB.GET k 1 2 3")
            .await
            .contains("this connection has no direct transfers: the client")
    );
}

/// The server's own commands of that name are out of reach then.
#[tokio::test]
async fn values_move_between_two_clients_of_different_gateways() {
    let any = "127.0.0.1:0".parse().unwrap();
    let server = Server::builder(Mock::new()).direct(true);
    let server = server.rdma(DeviceKind::Emulated, any, &TransportConfig::default()).start().await.unwrap();
    let url = server.urls().next().unwrap();
    let (_first, first) = gateway_with(&url, |_| {}).await;
    let (_second, second) = gateway_with(&format!("emulated://{first}"), |_| {}).await;
    let value = pattern(300_000);
    let (mut one, mut other) = (Wire::new(second, &value).await, Wire::new(first, &[0; 300_000]).await);
    assert_eq!(one.say("BLOB.SET k 300000 @").await, "OK");
    assert!(other.say("BLOB.GET k @").await.starts_with("[:300000 "));
    assert!(other.memory() == value);
}
