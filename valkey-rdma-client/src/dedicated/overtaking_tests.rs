//! Commands that end others, or are of use while others wait, do not wait behind them.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::*;
use crate::client::Client;
use crate::config::Config;
use crate::error::Fate;
use crate::link::tests::{Door, HELLO, PROBE, Peer, pair};

/// The encoded form of a command.
fn wire(line: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    let args: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{args}", words.len())
}

fn start(client: &Client, line: &str) -> tokio::task::JoinHandle<Result<Value, Error>> {
    let (client, command) = (client.clone(), Command::from_args(line.split(' ')));
    tokio::spawn(async move { client.command(command).await })
}

/// A script that runs on the shared connection, and the server's end of it.
async fn running(config: &Config) -> (tokio::task::JoinHandle<Result<Value, Error>>, Client, Door, Peer) {
    let (client, door, mut shared) = pair(config).await;
    let script = start(&client, "EVAL loop 0");
    shared.expect(&wire("EVAL loop 0")).await;
    (script, client, door, shared)
}

#[tokio::test(start_paused = true)]
async fn what_ends_a_script_does_not_wait_behind_it() {
    for line in ["SCRIPT KILL", "FUNCTION KILL", "FUNCTION STATS", "SHUTDOWN NOSAVE", "CLIENT UNPAUSE"] {
        let (script, client, door, mut shared) = running(&Config::default()).await;
        let mut own = door.admit();
        let kill = start(&client, line);
        own.greet().await;
        own.expect(&wire(line)).await;
        own.say(b"+OK\r\n").await;
        assert!(kill.await.expect("no panic").expect(line).is_ok(), "{line}");
        shared.say(b"-ERR Error running script: killed\r\n").await;
        assert!(script.await.expect("no panic").is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ended_one_script_waits_for_the_next() {
    let (_script, client, door, _shared) = running(&Config::default()).await;
    let mut own = door.admit();
    for attempt in 0..3 {
        let kill = start(&client, "SCRIPT KILL");
        if attempt == 0 {
            own.greet().await;
        }
        own.expect(&wire("SCRIPT KILL")).await;
        own.say(b"+OK\r\n").await;
        assert!(kill.await.expect("no panic").is_ok());
    }
    assert_eq!(door.tries(), 2, "the shared one, and one more");
}

/// The settings of a connection with a database and a name.
fn settings() -> String {
    wire("SELECT 3") + &wire("CLIENT SETNAME ours")
}

/// Takes the setup of a connection with these settings, and answers what follows the login.
async fn greet_with(peer: &mut Peer, settings: &str, answers: &[u8]) {
    peer.expect(&(HELLO.to_owned() + settings)).await;
    let mut rest = Vec::new();
    while !rest.ends_with(PROBE.as_bytes()) {
        peer.0.read_buf(&mut rest).await.expect("the client writes");
    }
    peer.say(&[b"%1\r\n$5\r\nproto\r\n:3\r\n", answers].concat()).await;
}

async fn greet(peer: &mut Peer) {
    greet_with(peer, &settings(), &[&b"+OK\r\n".repeat(4)[..], b"+PONG\r\n"].concat()).await;
}

/// As Valkey 8.1 does while a script runs: it answers only the login.
async fn greet_busily(peer: &mut Peer) {
    greet_with(peer, &settings(), &b"-BUSY a script runs\r\n".repeat(5)).await;
}

/// A client with a database and a name, and the server.
async fn named_in_database_3() -> (Client, Door, Peer) {
    let door = Door::default();
    let mut shared = door.admit();
    let config = Config::default().name("ours");
    let (client, ()) = tokio::join!(door.connect_to("valkey://test:1/3", &config), greet(&mut shared));
    (client, door, shared)
}

#[tokio::test(start_paused = true)]
async fn a_name_and_a_database_do_not_keep_a_script_from_being_ended() {
    let (client, door, _shared) = named_in_database_3().await;
    let mut own = door.admit();
    let kill = start(&client, "SCRIPT KILL");
    greet_busily(&mut own).await;
    own.expect(&wire("SCRIPT KILL")).await;
    own.say(b"+OK\r\n").await;
    assert!(kill.await.expect("no panic").expect("killed").is_ok());
    // Nothing else may run in database 0.
    let end = timeout(Duration::from_secs(60), own.0.read(&mut [0; 1])).await;
    assert_eq!(end.expect("closed").expect("closed"), 0);
    let mut next = door.admit();
    let blocked = client.blocking_command(["BLPOP", "l", "0"]);
    let serve = async {
        greet(&mut next).await;
        next.expect(&wire("BLPOP l 0")).await;
        next.say(b"_\r\n").await;
    };
    let (outcome, ()) = tokio::join!(blocked, serve);
    assert!(outcome.expect("answered").is_nil());
}

/// It lacks settings, and works.
#[tokio::test(start_paused = true)]
async fn a_connection_that_was_made_during_a_script_is_open() {
    let (client, door, _shared) = named_in_database_3().await;
    let mut own = door.admit();
    let (connection, ()) =
        tokio::join!(client.server().checkout(Purpose::Overtaking), greet_busily(&mut own));
    assert!(connection.expect("connected").is_open());
}

/// Its commands would run without the name.
#[tokio::test(start_paused = true)]
async fn a_dedicated_connection_always_has_its_name() {
    let door = Door::default();
    let mut shared = door.admit();
    let config = Config::default().name("ours");
    let name = wire("CLIENT SETNAME ours");
    let answers = b"+OK\r\n+OK\r\n+OK\r\n+PONG\r\n";
    let (client, ()) = tokio::join!(door.connect(&config), greet_with(&mut shared, &name, answers));
    let mut own = door.admit();
    let busy = b"-BUSY a script runs\r\n".repeat(4);
    let (connection, ()) = tokio::join!(client.dedicated(), greet_with(&mut own, &name, &busy));
    let error = connection.expect_err("without its name");
    assert_eq!(error.server().map(|error| &*error.code), Some("BUSY"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_blocking_command_never_runs_in_another_database() {
    let (client, door, _shared) = named_in_database_3().await;
    let mut own = door.admit();
    let blocked = tokio::spawn({
        let client = client.clone();
        async move { client.blocking_command(["BLPOP", "l", "0"]).await }
    });
    greet_busily(&mut own).await;
    let error = blocked.await.expect("no panic").expect_err("not in its database");
    assert_eq!(error.server().map(|error| &*error.code), Some("BUSY"), "{error}");
    assert_eq!(own.0.read(&mut [0; 1]).await.expect("closed"), 0, "nothing was sent");
}

#[tokio::test(start_paused = true)]
async fn what_ends_a_script_has_the_limit_of_every_command() {
    let config = Config::default().command_timeout(Duration::from_secs(3));
    let (_script, client, door, _shared) = running(&config).await;
    let mut own = door.admit();
    let kill = start(&client, "SCRIPT KILL");
    own.greet().await;
    own.expect(&wire("SCRIPT KILL")).await;
    let error = kill.await.expect("no panic").expect_err("no answer");
    assert!(matches!(error, Error::TimedOut(_)) && error.fate() == Fate::MayHaveRun, "{error}");
}

#[tokio::test(start_paused = true)]
async fn in_a_pipeline_it_would_wait_and_is_refused() {
    let (client, _door, _shared) = pair(&Config::default()).await;
    for kill in [["SCRIPT", "KILL"], ["FUNCTION", "KILL"]] {
        let refused = client.pipeline().command(["PING"]).command(kill).send().await.expect_err("refused");
        assert!(matches!(&refused, Error::Refused(_)), "{refused}");
        assert!(refused.to_string().contains("Client::command"), "{refused}");
        let refused = client.transaction().command(kill).execute().await.expect_err("refused");
        assert!(matches!(&refused, Error::Refused(_)), "{refused}");
    }
}

/// It may be of use there: the program has several clients, or nothing runs.
#[tokio::test(start_paused = true)]
async fn over_the_only_stream_it_is_sent_with_the_others() {
    let (ours, peer) = tokio::io::duplex(4096);
    let mut peer = Peer(peer);
    let endpoint = "valkey://test:1".parse().expect("a good URL");
    let (client, ()) = tokio::join!(Client::from_stream(ours, &endpoint), peer.greet());
    let client = client.expect("connected");
    let kill = start(&client, "SCRIPT KILL");
    peer.expect(&wire("SCRIPT KILL")).await;
    peer.say(b"-NOTBUSY No scripts in execution right now.\r\n").await;
    let outcome = timeout(Duration::from_secs(60), kill).await.expect("answered").expect("no panic");
    assert!(outcome.expect_err("nothing runs").server().is_some());
}
