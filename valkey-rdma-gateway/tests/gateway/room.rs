//! Unused connections make room for others.

use tokio::net::TcpStream;
use tokio::time::timeout;
use valkey_rdma_mock::Mock;

use crate::support::{Client, PATIENCE, Running, advance, in_front_of, mock_with};

/// A client with a shared connection of its own: those of one database share.
async fn in_database(gateway: &Running, database: u32) -> Client {
    let mut client = gateway.client().await;
    assert_eq!(client.say(&format!("SELECT {database}")).await, "OK");
    assert_eq!(client.say("GET k").await, "(nil)");
    client
}

/// Clients in four databases use all four connections, and leave.
async fn all_used(gateway: &Running) {
    let mut clients = Vec::new();
    for database in 0..4 {
        clients.push(in_database(gateway, database).await);
    }
}

#[tokio::test]
async fn unused_shared_connections_give_way_to_those_of_others() {
    let (_server, emulated, tcp) = mock_with(Mock::new()).await;
    for url in [emulated, tcp] {
        let gateway = in_front_of(&url, |limits| limits.upstreams = 4).await;
        all_used(&gateway).await;
        let mut clients = Vec::new();
        // A client begins in database 0, which takes a connection too.
        for database in 4..7 {
            clients.push(in_database(&gateway, database).await);
        }
        for client in &mut clients {
            assert_eq!(client.say("GET k").await, "(nil)");
        }
    }
}

#[tokio::test]
async fn a_shared_connection_ends_30_to_60_s_after_its_last_client_has_left() {
    let (server, _, url) = mock_with(Mock::new()).await;
    let gateway = in_front_of(&url, |_| {}).await;
    let client = in_database(&gateway, 1).await;
    drop(client);
    // The test asks as a client of database 0.
    gateway.until("gateway_clients", |count| count == 1).await;
    let connections = || server.monitor().counters().connections;
    assert_eq!(connections(), 2);
    advance(29).await;
    assert_eq!(gateway.info("gateway_clients").await, 1);
    assert_eq!(connections(), 2, "not yet");
    let still_used = in_database(&gateway, 0).await;
    advance(31).await;
    gateway.until("gateway_clients", |count| count == 2).await;
    let ended = async {
        while connections() > 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, ended).await.expect("it has ended");
    drop(still_used);
}

#[tokio::test]
async fn a_lost_connection_that_no_client_uses_is_not_made_again() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let gateway = in_front_of(&url, |_| {}).await;
    drop(in_database(&gateway, 1).await);
    gateway.until("gateway_clients", |count| count == 1).await;
    let addr = url.split_once("://").unwrap().1;
    let mut server = Client::new(TcpStream::connect(addr).await.unwrap());
    assert!(server.say("CLIENT KILL TYPE normal SKIPME yes").await.starts_with(':'));
    // With that of database 0.
    gateway.until("gateway_connections_lost", |count| count == 2).await;
    let info = gateway.owner().await.say("INFO gateway").await;
    assert!(!info.contains("db=1 "), "{info}");
}

#[tokio::test]
async fn an_unused_shared_connection_gives_way_to_a_private_one() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = in_front_of(&url, |limits| limits.upstreams = 4).await;
    all_used(&gateway).await;
    let mut client = in_database(&gateway, 0).await;
    assert_eq!(client.say("WATCH k").await, "OK");
}

#[tokio::test]
async fn the_connection_that_was_unused_for_longest_goes_first() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = in_front_of(&url, |limits| limits.upstreams = 4).await;
    let mut clients = Vec::new();
    for database in [0, 1, 2, 3] {
        clients.push(in_database(&gateway, database).await);
    }
    // From the last to the first, each when the one before has gone. The test asks as a client too.
    for left in [4, 3, 2] {
        drop(clients.pop());
        gateway.until("gateway_clients", |count| count == left).await;
    }
    let _other = in_database(&gateway, 7).await;
    let info = clients[0].say("INFO gateway").await;
    let has = |database: u32| info.contains(&format!("db={database} "));
    let kept = [1, 2, 3, 7].map(has);
    assert_eq!(kept, [true, true, false, true], "{info}");
}

#[tokio::test]
async fn unused_connections_stay_if_all_of_them_are_too_few_for_a_private_one() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = in_front_of(&url, |limits| limits.upstreams = 4).await;
    let mut clients = Vec::new();
    for database in [0, 1, 2, 3] {
        clients.push(in_database(&gateway, database).await);
    }
    drop(clients.pop());
    gateway.until("gateway_clients", |count| count == 4).await;
    // One place is kept for shared connections, so that a private one would need two.
    let refused = clients[1].say("WATCH k").await;
    assert!(refused.starts_with("-NOUPSTREAM "), "{refused}");
    let info = clients[0].say("INFO gateway").await;
    assert!(info.contains("db=3 "), "{info}");
}

#[tokio::test]
async fn unused_connections_stay_if_the_server_cannot_be_reached() {
    let mock = Mock::new();
    // Over TCP, the loss of a connection is noticed at once.
    mock.on("SELECT").with("5").drop_connection();
    let (_server, _, url) = mock_with(mock).await;
    let gateway = in_front_of(&url, |limits| limits.offline_ms = 100).await;
    all_used(&gateway).await;
    let mut client = gateway.client().await;
    client.command("SELECT 5").await;
    client.expect_end().await;
    let info = gateway.client().await.say("INFO gateway").await;
    let kept = [0, 1, 2, 3].map(|database| info.contains(&format!("db={database} ")));
    assert_eq!(kept, [true; 4], "{info}");
}
