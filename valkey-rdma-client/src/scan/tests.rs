//! Scans of one server, whose cursors end with its connection: the next one may lead to another server.

use std::time::Duration;

use tokio::time::timeout;

use super::*;
use crate::config::Config;
use crate::error::ClusterError;
use crate::link::tests::{Door, Peer, pair, settle};

/// The request for the batch at a cursor.
fn scan_at(cursor: &str) -> String {
    format!("*2\r\n$4\r\nSCAN\r\n${}\r\n{cursor}\r\n", cursor.len())
}

/// A batch of one key, and the next cursor.
fn one_key(key: &str, next: &str) -> Vec<u8> {
    format!("*2\r\n${}\r\n{next}\r\n*1\r\n${}\r\n{key}\r\n", next.len(), key.len()).into_bytes()
}

async fn answer(peer: &mut Peer, cursor: &str, key: &str, next: &str) {
    peer.expect(&scan_at(cursor)).await;
    peer.say(&one_key(key, next)).await;
}

/// A scan that has had its first batch, and the server.
async fn begun() -> (Client, Door, Peer, Scan) {
    let (client, door, mut peer) = pair(&Config::default()).await;
    let mut scan = client.scan();
    let (batch, ()) = tokio::join!(scan.next_batch(), answer(&mut peer, "0", "old", "17"));
    assert_eq!(batch.expect("a batch"), Some(vec![Bytes::from_static(b"old")]));
    (client, door, peer, scan)
}

#[tokio::test(start_paused = true)]
async fn a_scan_goes_on_at_its_cursor() {
    let (_client, _door, mut peer, mut scan) = begun().await;
    let (batch, ()) = tokio::join!(scan.next_batch(), answer(&mut peer, "17", "a", "0"));
    assert_eq!(batch.expect("a batch"), Some(vec![Bytes::from_static(b"a")]));
    assert_eq!(scan.next_batch().await.expect("the end"), None);
}

#[tokio::test(start_paused = true)]
async fn a_scan_begins_anew_on_the_next_connection() {
    let (_client, door, peer, mut scan) = begun().await;
    drop(peer);
    let mut peer = door.admit();
    peer.greet_again().await;
    settle().await;
    let (batch, ()) = tokio::join!(scan.next_batch(), answer(&mut peer, "0", "new", "0"));
    assert_eq!(batch.expect("a batch"), Some(vec![Bytes::from_static(b"new")]));
    assert_eq!(scan.next_batch().await.expect("the end"), None);
}

/// It was sent before the client knew. To another server, it may look like the last one.
#[tokio::test(start_paused = true)]
async fn the_answer_of_the_next_connection_to_an_old_cursor_is_not_the_end() {
    let (_client, door, peer, mut scan) = begun().await;
    drop(peer);
    settle().await;
    let mut peer = door.admit();
    let serve = async {
        peer.greet_again().await;
        answer(&mut peer, "17", "x", "0").await;
        answer(&mut peer, "0", "new", "0").await;
    };
    let both = async { tokio::join!(scan.next_batch(), serve) };
    let (batch, ()) = timeout(Duration::from_secs(60), both).await.expect("asked again from the beginning");
    assert_eq!(batch.expect("a batch"), Some(vec![Bytes::from_static(b"new")]));
    assert_eq!(scan.next_batch().await.expect("the end"), None);
}

#[tokio::test(start_paused = true)]
async fn a_scan_of_elements_begins_anew_too() {
    let (client, door, mut peer) = pair(&Config::default()).await;
    let mut scan = client.scan_set("s");
    let sscan = |cursor: &str| format!("*3\r\n$5\r\nSSCAN\r\n$1\r\ns\r\n${}\r\n{cursor}\r\n", cursor.len());
    let serve = async |peer: &mut Peer, next: &str| {
        peer.expect(&sscan("0")).await;
        peer.say(&one_key("e", next)).await;
    };
    let (batch, ()) = tokio::join!(scan.next_batch(), serve(&mut peer, "17"));
    assert_eq!(batch.expect("a batch").map(|batch| batch.len()), Some(1));
    drop(peer);
    let mut peer = door.admit();
    peer.greet_again().await;
    settle().await;
    let (batch, ()) = tokio::join!(scan.next_batch(), serve(&mut peer, "0"));
    assert_eq!(batch.expect("a batch").map(|batch| batch.len()), Some(1));
    assert_eq!(scan.next_batch().await.expect("the end"), None);
}

#[tokio::test(start_paused = true)]
async fn a_scan_whose_connections_live_too_short_for_it_ends_with_an_error() {
    let (_client, door, mut peer, mut scan) = begun().await;
    let error = loop {
        drop(peer);
        peer = door.admit();
        peer.greet_again().await;
        settle().await;
        let answered = async {
            answer(&mut peer, "0", "a", "17").await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            batch = scan.next_batch() => match batch {
                Ok(batch) => assert!(batch.is_some()),
                Err(error) => break error,
            },
            () = answered => {}
        }
    };
    let Error::Cluster(ClusterError::ScanRestarted { command, address, count: 8 }) = &error else {
        panic!("{error:?}")
    };
    assert_eq!((&**command, &**address), ("SCAN", "test:1"));
    let both = async { tokio::join!(scan.next_batch(), answer(&mut peer, "0", "a", "0")) };
    let (batch, ()) = timeout(Duration::from_secs(60), both).await.expect("it goes on after the error");
    assert!(batch.expect("a batch").is_some());
}
