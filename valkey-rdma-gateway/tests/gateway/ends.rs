//! The end of a client: it has the replies to all commands that ran.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use valkey_rdma_gateway::{Limits, Share};
use valkey_rdma_mock::Mock;
use valkey_rdma_transport::{Config as TransportConfig, DeviceKind, Stream};

use crate::direct::gateway_with;
use crate::scripted::{Scripted, expect};
use crate::support::{Client, PATIENCE, Running, config, encode, gateway, in_front_of, mock_with, start};

/// A TCP client that has been sent this many bytes of replies, most of which wait in its gateway's system, and which has sent bytes that
/// the gateway has not read.
async fn slow_reader(gateway: &Running, end: &[u8]) -> (TcpStream, usize) {
    let value = "v".repeat(60 << 10);
    assert_eq!(gateway.client().await.say(&format!("SET big {value}")).await, "OK");
    let socket = TcpSocket::new_v4().unwrap();
    // Without it, the client's system might take all replies before the end.
    socket.set_recv_buffer_size(60 << 10).unwrap();
    let mut client = socket.connect(gateway.tcp).await.unwrap();
    let commands: Vec<u8> = (0..REPLIES).flat_map(|_| encode(["GET", "big"])).collect();
    client.write_all(&commands).await.unwrap();
    client.write_all(end).await.unwrap();
    gateway.until("gateway_commands_shared", |count| count > REPLIES as u64).await;
    // It begins a command while more than 1 MiB of replies waits in the gateway, which reads no commands then.
    client.write_all(b"*1\r\n$4\r\nPI").await.unwrap();
    (client, REPLIES * (value.len() + "$61440\r\n\r\n".len()))
}

#[tokio::test]
async fn a_tcp_client_that_sends_while_the_gateway_stops_has_all_replies() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let (mut client, expected) = slow_reader(&gateway, b"").await;
    let unix = gateway.unix.clone();
    let stopped = tokio::spawn(gateway.gateway.shutdown());
    while unix.exists() {
        tokio::task::yield_now().await;
    }
    let mut received = Vec::new();
    let read = timeout(PATIENCE, client.read_to_end(&mut received)).await.expect("in time");
    assert_eq!((received.len(), read.is_ok()), (expected, true), "{read:?}");
    drop(client);
    timeout(PATIENCE, stopped).await.expect("in time").unwrap();
}

#[tokio::test]
async fn a_tcp_client_that_sends_after_quit_has_all_replies() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let (mut client, expected) = slow_reader(&gateway, &encode(["QUIT"])).await;
    let mut received = Vec::new();
    let read = timeout(PATIENCE, client.read_to_end(&mut received)).await.expect("in time");
    assert_eq!((received.len(), read.is_ok()), (expected + "+OK\r\n".len(), true), "{read:?}");
}

/// A gateway that refuses clients, and its only client.
async fn full_gateway(url: &str) -> (Running, Client) {
    let gateway = in_front_of(url, |limits| limits.clients = 1).await;
    let mut client = gateway.client().await;
    assert_eq!(client.say("PING").await, "PONG");
    (gateway, client)
}

/// A TCP client that has sent a command before the gateway accepts it.
fn hasty_client(gateway: &Running) -> TcpStream {
    // The gateway runs on this thread, so that it does nothing in between.
    let mut client = std::net::TcpStream::connect(gateway.tcp).unwrap();
    std::io::Write::write_all(&mut client, &encode(["PING"])).unwrap();
    client.set_nonblocking(true).unwrap();
    TcpStream::from_std(client).unwrap()
}

#[tokio::test]
async fn a_tcp_client_that_is_refused_can_send_before_it_reads_why() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let (gateway, _client) = full_gateway(&url).await;
    let mut client = hasty_client(&gateway);
    // The refusal is here: a gateway that did not wait for the client has reset the connection.
    timeout(PATIENCE, client.peek(&mut [0])).await.expect("in time").unwrap();
    client.write_all(&encode(["PING"])).await.unwrap();
    let mut received = String::new();
    timeout(PATIENCE, client.read_to_string(&mut received)).await.expect("in time").unwrap();
    assert_eq!(received, "-ERR max number of clients reached\r\n");
}

/// The clients do not end their side.
#[tokio::test]
async fn clients_that_are_refused_do_not_wait_for_each_other() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let (gateway, _client) = full_gateway(&url).await;
    let addr = gateway.tcp;
    // The gateway's clock stands still while a blocking task runs.
    tokio::time::pause();
    let refused = tokio::task::spawn_blocking(move || {
        let refuse = |_| {
            let mut client = std::net::TcpStream::connect(addr).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let len = std::io::Read::read(&mut client, &mut [0; 64]).unwrap();
            assert_eq!(len, "-ERR max number of clients reached\r\n".len());
            client
        };
        (0..20).map(refuse).collect::<Vec<_>>()
    });
    refused.await.unwrap();
}

#[tokio::test]
async fn without_sharing_a_tcp_client_reads_why_there_is_no_connection() {
    let mock = Mock::new().requirepass("secret");
    let (_server, _, url) = mock_with(mock).await;
    let gateway = gateway(&url.replace("://", "://:wrong@"), Share::Never).await;
    let mut client = hasty_client(&gateway);
    let mut received = String::new();
    timeout(PATIENCE, client.read_to_string(&mut received)).await.expect("in time").unwrap();
    assert!(received.starts_with("-WRONGPASS "), "{received}");
}

/// The server keeps the connection of a client that has left.
#[tokio::test]
async fn without_sharing_a_stop_does_not_wait_for_the_server() {
    let server = Scripted::start().await;
    let mut limits = Limits::default();
    limits.drain_ms = 2 * PATIENCE.as_millis() as u64;
    let gateway = start(&config(&server.url, Share::Never, limits)).await;
    let client = TcpStream::connect(gateway.tcp).await.unwrap();
    let mut kept = server.accept_raw().await;
    drop(client);
    assert_eq!(timeout(PATIENCE, kept.read(&mut [0])).await.expect("in time").unwrap(), 0);
    // The server has 60 s for its last replies.
    timeout(PATIENCE / 10, gateway.gateway.shutdown()).await.expect("does not wait");
}

/// A private connection whose client has sent these commands, and the shared connection.
pub(crate) async fn private(commands: &[&str]) -> (Running, Client, TcpStream, TcpStream) {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let mut client = gateway.client().await;
    let commands: Vec<u8> = commands.iter().flat_map(|line| encode(line.split(' '))).collect();
    client.send(&commands).await;
    let shared = server.accept().await;
    let mut connection = server.accept_as("", 8).await;
    expect(&mut connection, &commands).await;
    (gateway, client, connection, shared)
}

/// Has the gateway stopped, or the client close its side.
pub(crate) async fn end(stop: bool, gateway: Running, client: &mut Client) -> Option<Running> {
    if stop {
        tokio::spawn(gateway.gateway.shutdown());
        return None;
    }
    client.stream.shutdown().await.unwrap();
    Some(gateway)
}

#[tokio::test]
async fn a_client_that_ends_while_it_blocks_has_what_came_before() {
    for stop in [true, false] {
        let (gateway, mut client, mut connection, mut shared) =
            private(&["WATCH k", "GET k", "BLPOP l 0"]).await;
        let _gateway = end(stop, gateway, &mut client).await;
        connection.write_all(b"+OK\r\n+V\r\n").await.unwrap();
        client.expect_bytes(b"+OK\r\n+V\r\n").await;
        expect(&mut shared, &encode(["CLIENT", "UNBLOCK", "8", "ERROR"])).await;
        shared.write_all(b":1\r\n").await.unwrap();
        tokio::spawn(find_nothing_blocked(shared));
        connection.write_all(b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n").await.unwrap();
        client.expect_end().await;
    }
}

#[tokio::test]
async fn a_client_that_ends_while_it_blocks_has_the_element_that_was_removed_for_it() {
    for stop in [true, false] {
        let (gateway, mut client, mut connection, mut shared) = private(&["BLPOP l 0"]).await;
        let _gateway = end(stop, gateway, &mut client).await;
        // The server may read this before the command that blocks: it is asked again.
        for _ in 0..2 {
            expect(&mut shared, &encode(["CLIENT", "UNBLOCK", "8", "ERROR"])).await;
            shared.write_all(b":0\r\n").await.unwrap();
        }
        let element = b"*2\r\n$1\r\nl\r\n$1\r\na\r\n";
        connection.write_all(element).await.unwrap();
        tokio::spawn(find_nothing_blocked(shared));
        client.expect_bytes(element).await;
        client.expect_end().await;
    }
}

/// Answers attempts that come before the end of the block is seen.
async fn find_nothing_blocked(mut shared: TcpStream) {
    while expect_any(&mut shared).await {
        shared.write_all(b":0\r\n").await.unwrap();
    }
}

/// Whether the peer has sent something, and has not closed.
pub(crate) async fn expect_any(stream: &mut TcpStream) -> bool {
    stream.read(&mut [0; 256]).await.is_ok_and(|len| len > 0)
}

#[tokio::test]
async fn a_client_that_closes_its_side_behind_a_blocking_command_has_its_reply_over_any_transport() {
    let (_server, emulated, tcp) = mock_with(Mock::new()).await;
    for url in [emulated, tcp] {
        let gateway = gateway(&url, Share::Auto).await;
        for _ in 0..10 {
            let (mut worker, mut pusher) = (gateway.client().await, gateway.client().await);
            assert_eq!(pusher.say("RPUSH l a").await, ":1");
            worker.send([encode(["BLPOP", "l", "0"]), encode(["BLPOP", "l", "0"])].concat()).await;
            worker.stream.shutdown().await.unwrap();
            worker.expect_bytes(b"*2\r\n$1\r\nl\r\n$1\r\na\r\n").await;
            worker.expect_end().await;
        }
    }
}

#[tokio::test]
async fn a_blocked_client_whose_user_may_not_unblock_is_closed() {
    for stop in [true, false] {
        let (gateway, mut client, mut connection, mut shared) = private(&["WATCH k", "BLPOP l 0"]).await;
        connection.write_all(b"+OK\r\n").await.unwrap();
        let _gateway = end(stop, gateway, &mut client).await;
        expect(&mut shared, &encode(["CLIENT", "UNBLOCK", "8", "ERROR"])).await;
        shared.write_all(b"-NOPERM no permissions\r\n").await.unwrap();
        client.expect_bytes(b"+OK\r\n").await;
        client.expect_end().await;
        assert!(!expect_any(&mut connection).await, "the server must not wait for it");
    }
}

/// A module's command, for example: the server does not end its block.
#[tokio::test]
async fn a_client_whose_block_the_server_does_not_end_is_closed() {
    for stop in [true, false] {
        let (gateway, mut client, mut connection, shared) = private(&["WATCH k", "BLPOP l 0"]).await;
        connection.write_all(b"+OK\r\n").await.unwrap();
        let _gateway = end(stop, gateway, &mut client).await;
        tokio::spawn(find_nothing_blocked(shared));
        client.expect_bytes(b"+OK\r\n").await;
        client.expect_end().await;
        assert!(!expect_any(&mut connection).await, "the server must not wait for it");
    }
}

/// The gateway keeps no more of its commands, so that it reads nothing.
#[tokio::test]
async fn the_end_of_an_rdma_client_is_seen_while_nothing_is_read_from_it() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let (gateway, addr) = gateway_with(&url, |_| {}).await;
    let stream = Stream::connect(DeviceKind::Emulated, addr, &TransportConfig::default()).await.unwrap();
    let mut client = Client::new(stream);
    client.send([encode(["BLPOP", "l", "0"]), encode(["PING"]).repeat(10_000)].concat()).await;
    gateway.until("gateway_connections", |count| count == 2).await;
    drop(client);
    gateway.until("gateway_clients", |count| count == 1).await;
}

/// More than fits into the buffers of both systems.
const REPLIES: usize = 128;
