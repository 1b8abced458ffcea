//! The places of clients, of which there are as many as `limits.clients`.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use valkey_rdma_gateway::{Limits, Listen, Share};
use valkey_rdma_mock::Mock;

use crate::scripted::Scripted;
use crate::support::{PATIENCE, Running, config, encode, mock_with, text, until, with_health};

/// Takes logins, and answers nothing else: it has frozen, and its connections stay.
async fn freeze(server: Scripted) {
    let mut connections = JoinSet::new();
    loop {
        let connection = server.accept_raw().await;
        connections.spawn(log_in(connection));
    }
}

async fn log_in(mut connection: TcpStream) -> TcpStream {
    let last = encode(["CLIENT", "ID"]);
    let mut received = Vec::new();
    while !received.windows(last.len()).any(|words| words == last) {
        assert!(connection.read_buf(&mut received).await.unwrap() > 0);
    }
    connection.write_all(b"+OK\r\n+PONG\r\n:7\r\n").await.unwrap();
    connection
}

/// Connects on the last route until a client is served there.
async fn until_served(gateway: &Running) {
    let served = async {
        loop {
            let mut client = gateway.client().await;
            if client.stream_send(&encode(["PING"])).await.is_some()
                && client.try_reply().await.is_some_and(|reply| text(&reply) == "PONG")
            {
                return;
            }
        }
    };
    timeout(PATIENCE, served).await.expect("a client has a place");
}

/// Clients of a frozen server send these commands and leave, until there are as many as there may be. One of another server is served.
/// Over TCP, nothing ends the connection to the frozen one.
async fn make_room(lines: &[&str]) {
    let frozen = Scripted::start().await;
    let (_server, _, url) = mock_with(Mock::new()).await;
    let mut limits = Limits::default();
    limits.clients = 4;
    let mut both = config(&frozen.url, Share::Auto, limits.clone());
    both.routes.extend(config(&url, Share::Auto, limits.clone()).routes);
    let Listen::Unix(first) = both.routes[0].listen[0].clone() else { panic!("not a Unix socket") };
    let clients = format!("\nvalkey_rdma_gateway_clients{{server=\"{}\"}} {}\n", frozen.url, limits.clients);
    let freezing = tokio::spawn(freeze(frozen));
    let (gateway, addr) = with_health(both).await;
    let commands: Vec<u8> = lines.iter().flat_map(|line| encode(line.split(' '))).collect();
    for _ in 0..limits.clients {
        UnixStream::connect(&first).await.unwrap().write_all(&commands).await.unwrap();
    }
    until(addr, "/metrics", &clients).await;
    until_served(&gateway).await;
    freezing.abort();
}

#[tokio::test]
async fn clients_that_have_left_a_frozen_server_give_their_places_to_others() {
    make_room(&["GET k"]).await;
}

#[tokio::test]
async fn clients_with_state_that_have_left_a_frozen_server_give_their_places_to_others() {
    make_room(&["WATCH k"]).await;
}

#[tokio::test]
async fn the_end_of_a_client_with_state_is_seen_while_its_next_command_waits_for_a_reply() {
    make_room(&["WATCH k", "CLIENT GETNAME"]).await;
}

#[tokio::test]
async fn the_end_of_a_client_is_seen_while_the_gateway_asks_the_server_for_it() {
    make_room(&["HELLO"]).await;
}

#[tokio::test]
async fn the_end_of_a_client_is_seen_while_its_next_command_waits_for_a_reply() {
    make_room(&["GET k", "CLIENT GETNAME"]).await;
}
