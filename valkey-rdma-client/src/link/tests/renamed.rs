//! A name that comes to mean another server, while the old one stays as a replica.

use super::*;
use crate::config::STABLE_AFTER;

const READ_ONLY: &[u8] = b"-READONLY You can't write against a read only replica.\r\n";
const ROLE: &str = "*1\r\n$4\r\nROLE\r\n";
const SET: &str = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";

/// A program writes to what has become a replica. Returns the connection that the client makes to ask for the role.
async fn write_to_replica(client: &Client, door: &Door, old: &mut Peer) -> Peer {
    let mut asked = door.admit();
    let write = start(client, Command::new("SET").arg("k").arg("v"));
    old.expect(SET).await;
    old.say(READ_ONLY).await;
    let error = write.await.expect("no panic").expect_err("it did not run");
    assert_eq!(error.server().map(|error| &*error.code), Some("READONLY"));
    asked.greet().await;
    asked.expect(ROLE).await;
    asked
}

#[tokio::test(start_paused = true)]
async fn after_readonly_commands_go_to_the_primary_that_a_new_connection_reaches() {
    let (client, door, mut old) = pair(&Config::default()).await;
    tokio::time::advance(STABLE_AFTER * 2).await;
    let mut asked = write_to_replica(&client, &door, &mut old).await;
    let before = start(&client, get("a"));
    old.expect(&raw("a")).await;
    asked.say(b"*3\r\n$6\r\nmaster\r\n:1\r\n*0\r\n").await;
    settle().await;
    let after = start(&client, get("b"));
    settle().await;
    assert!(old.0.read_u8().now_or_never().is_none(), "it has led to its last command");

    let mut new = door.admit();
    old.say(b"$1\r\nA\r\n").await;
    assert_eq!(before.await.expect("no panic").expect("a reply").as_str(), Some("A"));
    new.greet_again().await;
    new.expect(&raw("b")).await;
    new.say(b"$1\r\nB\r\n").await;
    assert_eq!(after.await.expect("no panic").expect("a reply").as_str(), Some("B"));
    assert_eq!(client.counters().retries, 0);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_to_a_replica_is_left_by_the_next_command() {
    let (client, door, mut old) = pair(&Config::default()).await;
    tokio::time::advance(STABLE_AFTER * 2).await;
    let mut asked = write_to_replica(&client, &door, &mut old).await;
    asked.say(b"*3\r\n$6\r\nmaster\r\n:1\r\n*0\r\n").await;
    settle().await;
    let mut new = door.admit();
    let after = start(&client, get("b"));
    new.greet_again().await;
    new.expect(&raw("b")).await;
    new.say(b"$1\r\nB\r\n").await;
    assert_eq!(after.await.expect("no panic").expect("a reply").as_str(), Some("B"));
}

#[tokio::test(start_paused = true)]
async fn a_replica_on_purpose_keeps_its_connection() {
    let (client, door, mut old) = pair(&Config::default()).await;
    let mut asked = write_to_replica(&client, &door, &mut old).await;
    asked.say(b"*5\r\n$5\r\nslave\r\n$1\r\nh\r\n:1\r\n$9\r\nconnected\r\n:0\r\n").await;
    settle().await;
    let tries = door.tries();
    for _ in 0..10 {
        let write = start(&client, Command::new("SET").arg("k").arg("v"));
        old.expect(SET).await;
        old.say(READ_ONLY).await;
        write.await.expect("no panic").expect_err("it did not run");
        settle().await;
    }
    assert_eq!(door.tries(), tries, "it is not asked each time");
}
