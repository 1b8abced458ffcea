//! The end of a client: it has the replies to all commands that ran.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use valkey_rdma_gateway::Share;
use valkey_rdma_mock::Mock;

use crate::support::{PATIENCE, Running, encode, gateway, mock_with};

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

/// More than fits into the buffers of both systems.
const REPLIES: usize = 128;
