use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{Instant, sleep, timeout};
use valkey_rdma_resp::Value;

use super::submit::QUEUE_CAPACITY;
use crate::client::Client;
use crate::config::Config;
use crate::error::{Error, Fate};
use crate::events::ConnectionEvent;
use crate::multiplexer::driver::MAX_BATCHES_IN_FLIGHT;
use crate::resp::Command;

/// What a client sends to log in, and what it is answered.
const HELLO: &str = "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n";
const WELCOME: &[u8] = b"%0\r\n+OK\r\n+OK\r\n";

/// Where a client's connections arrive, in order; refused while there is none to give.
#[derive(Clone, Default)]
pub(crate) struct Door {
    open: Arc<Mutex<Vec<DuplexStream>>>,
    tried: Arc<AtomicUsize>,
}

impl Door {
    /// Lets one connection in, and gives its far end.
    pub(crate) fn admit(&self) -> Peer {
        let (ours, peer) = duplex(4096);
        self.open.lock().expect("no panic").push(ours);
        Peer(peer)
    }

    /// How often a connection was asked for.
    pub(crate) fn tries(&self) -> usize {
        self.tried.load(Ordering::Relaxed)
    }

    pub(crate) async fn connect(&self, config: &Config) -> Client {
        let door = self.clone();
        let dialer = move || {
            door.tried.fetch_add(1, Ordering::Relaxed);
            let stream = door.open.lock().expect("no panic").pop();
            async move { stream.ok_or_else(|| io::ErrorKind::ConnectionRefused.into()) }
        };
        Client::connect_with_dialer("valkey://test:1", config, dialer).await.expect("connected")
    }
}

/// The server's end.
pub(crate) struct Peer(pub(crate) DuplexStream);

impl Peer {
    pub(crate) async fn expect(&mut self, text: &str) {
        let mut received = vec![0; text.len()];
        self.0.read_exact(&mut received).await.expect("the client writes");
        assert_eq!(String::from_utf8_lossy(&received), text);
    }

    pub(crate) async fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.expect("open");
    }

    /// Takes the login and answers it.
    pub(crate) async fn greet(&mut self) {
        self.expect(HELLO).await;
        let mut info = [0; 512];
        let mut len = 0;
        while !info[..len].ends_with(concat!(env!("CARGO_PKG_VERSION"), "\r\n").as_bytes()) {
            len += self.0.read(&mut info[len..]).await.expect("the client writes");
        }
        self.say(WELCOME).await;
    }
}

pub(crate) async fn pair(config: &Config) -> (Client, Door, Peer) {
    let door = Door::default();
    let mut peer = door.admit();
    let (client, ()) = tokio::join!(door.connect(config), peer.greet());
    (client, door, peer)
}

fn start(client: &Client, command: Command) -> tokio::task::JoinHandle<Result<Value, Error>> {
    let client = client.clone();
    tokio::spawn(async move { client.execute(command).await })
}

fn get(key: &str) -> Command {
    Command::new("GET").arg(key)
}

fn raw(key: &str) -> String {
    format!("*2\r\n$3\r\nGET\r\n$1\r\n{key}\r\n")
}

pub(crate) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_comes_back_and_waiting_commands_go_on() {
    let (client, door, peer) = pair(&Config::default()).await;
    let mut events = client.events();
    assert!(client.is_connected());
    drop(peer);
    settle().await;
    assert!(!client.is_connected() && !client.is_closed());
    let waiting = start(&client, get("a"));
    settle().await;
    assert!(!waiting.is_finished());

    let mut peer = door.admit();
    peer.greet().await;
    peer.expect(&raw("a")).await;
    peer.say(b"$1\r\nA\r\n").await;
    assert_eq!(waiting.await.expect("no panic").expect("a reply").as_str(), Some("A"));
    assert!(client.is_connected());
    assert_eq!(client.counters().reconnects, 1);

    assert!(matches!(events.next().await, Some(ConnectionEvent::Connected { connection: 0, .. })));
    let lost = events.next().await.map(|event| event.to_string());
    assert_eq!(lost.as_deref(), Some("connection 0 lost: the peer closed it"));
    let mut failures = 0;
    let next = loop {
        match events.next().await {
            Some(ConnectionEvent::ReconnectFailed { .. }) => failures += 1,
            other => break other,
        }
    };
    assert!(matches!(next, Some(ConnectionEvent::Reconnected { connection: 0, .. })), "{next:?}");
    assert_eq!(failures, door.tries() - 2, "all but the first and the last");
    client.close().await;
    assert!(matches!(events.next().await, Some(ConnectionEvent::Closed { connection: 0, .. })));
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn only_what_cannot_have_run_or_is_idempotent_is_sent_again() {
    let (client, door, mut peer) = pair(&Config::default()).await;
    let once = start(&client, Command::new("INCR").arg("n"));
    peer.expect("*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n").await;
    let keys: Vec<String> = (1..MAX_BATCHES_IN_FLIGHT).map(|n| n.to_string()).collect();
    let mut again = Vec::new();
    for key in &keys {
        again.push(start(&client, get(key).idempotent()));
        peer.expect(&raw(key)).await;
    }
    // It waits: the limit of batches in flight is reached.
    let unsent = start(&client, get("b"));
    settle().await;
    drop(peer);

    let error = once.await.expect("no panic").expect_err("lost");
    assert!(matches!(error, Error::Lost(_)), "{error:?}");
    assert_eq!(error.fate(), Fate::MayHaveRun);
    let mut peer = door.admit();
    peer.greet().await;
    peer.expect(&(keys.iter().map(|key| raw(key)).collect::<String>() + &raw("b"))).await;
    for key in &keys {
        peer.say(format!("$1\r\n{key}\r\n").as_bytes()).await;
    }
    peer.say(b"$1\r\nB\r\n").await;
    for (again, key) in again.into_iter().zip(&keys) {
        assert_eq!(again.await.expect("no panic").expect("a reply").as_str(), Some(&**key));
    }
    assert_eq!(unsent.await.expect("no panic").expect("a reply").as_str(), Some("B"));
    assert_eq!(client.counters().retries, MAX_BATCHES_IN_FLIGHT as u64 - 1, "the last one was never sent");
}

#[tokio::test(start_paused = true)]
async fn a_command_that_ends_connections_is_not_sent_for_ever() {
    let config = Config::default().retries(2);
    let (client, door, mut peer) = pair(&config).await;
    let poison = start(&client, get("p").idempotent());
    peer.expect(&raw("p")).await;
    for _ in 0..2 {
        drop(peer);
        peer = door.admit();
        peer.greet().await;
        peer.expect(&raw("p")).await;
    }
    drop(peer);
    let error = poison.await.expect("no panic").expect_err("lost");
    assert_eq!(error.fate(), Fate::MayHaveRun);
    assert_eq!(client.counters().retries, 2);
}

#[tokio::test(start_paused = true)]
async fn commands_wait_for_a_connection_with_bounded_patience_and_learn_why() {
    let (client, door, mut peer) = pair(&Config::default()).await;
    let sent = start(&client, get("s").idempotent());
    peer.expect(&raw("s")).await;
    drop(peer);
    settle().await;
    let begin = Instant::now();
    let hurried = start(&client, get("h").timeout(Duration::from_secs(1)));
    let patient = start(&client, get("p"));

    let error = hurried.await.expect("no panic").expect_err("no connection");
    assert_eq!(begin.elapsed().as_secs(), 1);
    assert_eq!(error.fate(), Fate::NotSent);
    let error = patient.await.expect("no panic").expect_err("no connection");
    assert_eq!(begin.elapsed().as_secs(), 10);
    assert_eq!(
        error.to_string(),
        "cannot connect to test:1 over tcp: connection refused; is a server listening on this port?"
    );
    assert_eq!(error.fate(), Fate::NotSent);
    let error = sent.await.expect("no panic").expect_err("no connection");
    assert_eq!(error.fate(), Fate::MayHaveRun, "{error}");
    assert!(door.tries() > 3);
    assert!(!client.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_told_and_the_late_reply_is_dropped() {
    let config = Config::default().command_timeout(Duration::from_secs(2));
    let (client, _door, mut peer) = pair(&config).await;
    let begin = Instant::now();
    let late = start(&client, get("a"));
    peer.expect(&raw("a")).await;
    let error = late.await.expect("no panic").expect_err("too late");
    assert_eq!(begin.elapsed().as_secs(), 2);
    assert_eq!(error.to_string(), "no reply from test:1 within 2s; the command may have run");
    assert_eq!(error.fate(), Fate::MayHaveRun);

    let next = start(&client, get("b"));
    peer.expect(&raw("b")).await;
    peer.say(b"$1\r\nA\r\n$1\r\nB\r\n").await;
    assert_eq!(next.await.expect("no panic").expect("a reply").as_str(), Some("B"));
    assert_eq!(client.counters().timeouts, 1);
    assert_eq!(client.counters().reconnects, 0);
}

/// Also where the server takes no more bytes, so that commands can neither be sent nor taken from the queue.
#[tokio::test(start_paused = true)]
async fn every_command_meets_its_deadline_though_nothing_moves() {
    let (client, _door, _peer) = pair(&Config::default()).await;
    let begin = Instant::now();
    let value = "v".repeat(1000);
    let tasks: Vec<_> = (0..3000)
        .map(|_| {
            let command = Command::new("SET").arg("k").arg(&value).timeout(Duration::from_secs(1));
            start(&client, command)
        })
        .collect();
    let mut unsent = 0;
    for task in tasks {
        let error = task.await.expect("no panic").expect_err("nothing moves");
        assert!(matches!(error, Error::TimedOut(_)), "{error:?}");
        unsent += usize::from(error.fate() == Fate::NotSent);
    }
    assert_eq!(begin.elapsed().as_secs(), 1);
    assert!(unsent > 2000, "most never left the queue: {unsent}");
    assert_eq!(client.counters().timeouts, 3000);
}

/// What waited for a connection meets a server that takes nothing.
#[tokio::test(start_paused = true)]
async fn deadlines_hold_on_a_new_connection_that_blocks_at_once() {
    let config = Config::default().command_timeout(None).offline_timeout(None);
    let (client, door, peer) = pair(&config).await;
    drop(peer);
    settle().await;
    let begin = Instant::now();
    let endless = start(&client, Command::new("SET").arg("k").arg("v".repeat(64 * 1024)));
    settle().await;
    let limited = start(&client, get("a").timeout(Duration::from_secs(5)));
    settle().await;
    let mut peer = door.admit();
    peer.greet().await;
    let outcome = timeout(Duration::from_secs(60), limited).await.expect("its deadline");
    assert!(matches!(outcome.expect("no panic"), Err(Error::TimedOut(_))));
    assert_eq!(begin.elapsed().as_secs(), 5);
    assert!(!endless.is_finished());
}

/// However many wait before it, with all the time in the world.
#[tokio::test(start_paused = true)]
async fn a_short_deadline_holds_behind_many_long_ones() {
    let config = Config::default().command_timeout(None);
    let (client, _door, _peer) = pair(&config).await;
    let value = "v".repeat(1000);
    let endless: Vec<_> =
        (0..600).map(|_| start(&client, Command::new("SET").arg("k").arg(&value))).collect();
    settle().await;
    for _ in 0..2 {
        let begin = Instant::now();
        let limited = start(&client, get("a").timeout(Duration::from_secs(1)));
        let outcome = timeout(Duration::from_secs(60), limited).await.expect("its deadline");
        assert!(matches!(outcome.expect("no panic"), Err(Error::TimedOut(_))));
        assert_eq!(begin.elapsed().as_secs(), 1);
    }
    assert!(endless.iter().all(|task| !task.is_finished()));
}

/// Patience is for outages: what outlasted one waits for its turn.
#[tokio::test(start_paused = true)]
async fn patience_ends_with_the_outage() {
    let config = Config::default().command_timeout(None);
    let (client, door, peer) = pair(&config).await;
    drop(peer);
    settle().await;
    let first = start(&client, Command::new("SET").arg("k").arg("v".repeat(64 * 1024)));
    settle().await;
    let behind = start(&client, get("a"));
    // Its end makes the driver look at all that wait.
    let hurried = start(&client, get("b").timeout(Duration::from_secs(30)));
    settle().await;
    let mut peer = door.admit();
    peer.greet().await;
    sleep(Duration::from_secs(60)).await;
    assert!(matches!(hurried.await.expect("no panic"), Err(Error::TimedOut(_))));
    assert!(!first.is_finished() && !behind.is_finished());
}

/// While connected, only its own deadline ends a request that has waited for room.
#[tokio::test(start_paused = true)]
async fn patience_with_an_outage_does_not_count_while_connected() {
    let config = Config::default().command_timeout(None);
    let (client, _door, mut peer) = pair(&config).await;
    // The stream is full, so that requests wait in the queue, and more callers for room in it.
    let large = start(&client, Command::new("SET").arg("k").arg("v".repeat(1 << 20)));
    settle().await;
    let tasks: Vec<_> = (0..QUEUE_CAPACITY + 100).map(|_| start(&client, get("a"))).collect();
    settle().await;
    assert_eq!(client.queued(), [QUEUE_CAPACITY]);
    // Some of these leave the queue, and callers come in.
    peer.0.read_exact(&mut vec![0; 1 << 20]).await.expect("the large value");
    sleep(Duration::from_secs(60)).await;
    assert!(!large.is_finished());
    assert!(tasks.iter().all(|task| !task.is_finished()));
}

/// Memory is bounded, and callers beyond the bound are told of the outage like the others.
#[tokio::test(start_paused = true)]
async fn an_outage_holds_so_many_commands_and_no_more() {
    let config = Config::default().command_timeout(None);
    let (client, _door, peer) = pair(&config).await;
    drop(peer);
    settle().await;
    let begin = Instant::now();
    let tasks: Vec<_> = (0..3 * QUEUE_CAPACITY).map(|_| start(&client, get("a"))).collect();
    settle().await;
    assert_eq!(client.queued(), [QUEUE_CAPACITY]);
    for task in tasks {
        let error = task.await.expect("no panic").expect_err("no connection");
        assert!(error.to_string().contains("connection refused"), "{error}");
    }
    assert_eq!(begin.elapsed().as_secs(), 10);

    // Those that nobody waits for any more make room.
    let cancelled: Vec<_> = (0..QUEUE_CAPACITY).map(|_| start(&client, get("a"))).collect();
    settle().await;
    cancelled.iter().for_each(tokio::task::JoinHandle::abort);
    sleep(Duration::from_secs(6)).await;
    assert_eq!(client.queued(), [0]);
}

#[tokio::test(start_paused = true)]
async fn without_leave_to_reconnect_a_lost_connection_stays_lost() {
    let config = Config::default().reconnect(None);
    let (client, door, peer) = pair(&config).await;
    drop(peer);
    settle().await;
    assert!(client.is_closed());
    assert!(client.is_closed());
    let error = client.command(["PING"]).await.expect_err("lost");
    assert!(matches!(error, Error::Lost(_)) && !error.may_have_run(), "{error:?}");
    assert_eq!(door.tries(), 1);
}

#[tokio::test(start_paused = true)]
async fn closing_while_there_is_no_connection_tells_those_who_wait() {
    let (client, _door, peer) = pair(&Config::default()).await;
    drop(peer);
    settle().await;
    let waiting = start(&client, get("a"));
    settle().await;
    client.close().await;
    let error = waiting.await.expect("no panic").expect_err("closed");
    assert!(error.to_string().contains("closed by this program"), "{error}");
    assert!(client.is_closed());
}

#[tokio::test(start_paused = true)]
async fn closing_begins_on_all_connections_at_once_and_refuses_new_ones() {
    let door = Door::default();
    let config = Config::default().connections(2);
    let (mut first, mut second) = (door.admit(), door.admit());
    let greet = async {
        second.greet().await;
        first.greet().await;
    };
    let (client, ()) = tokio::join!(door.connect(&config), greet);
    let mut idle = door.admit();
    let blocking = async {
        idle.greet().await;
        idle.expect("*3\r\n$5\r\nBLPOP\r\n$1\r\nl\r\n$1\r\n0\r\n").await;
        idle.say(b"_\r\n").await;
    };
    let (popped, ()) = tokio::join!(client.blocking_command(["BLPOP", "l", "0"]), blocking);
    assert!(popped.expect("a reply").is_nil());
    // The first connection owes a reply for ever.
    let unanswered = start(&client, get("a"));
    second.expect(&raw("a")).await;
    assert!(timeout(Duration::from_secs(1), client.close()).await.is_err());

    assert_eq!(first.0.read(&mut [0; 1]).await.expect("closed"), 0);
    assert_eq!(idle.0.read(&mut [0; 1]).await.expect("closed"), 0);
    let _never_used = door.admit();
    let refusals = [
        client.dedicated().await.map(drop),
        client.subscriber().await.map(drop),
        client.get_into("k", &mut []).await.map(drop),
        client.command(["PING"]).await.map(drop),
        client.command(["PING"]).await.map(drop),
    ];
    for refusal in refusals {
        let error = refusal.expect_err("closed");
        assert!(error.to_string().contains("closed by this program"), "{error}");
        assert_eq!(error.fate(), Fate::NotSent);
    }
    assert_eq!(door.tries(), 3);
    second.say(b"$1\r\nA\r\n").await;
    assert!(unanswered.await.expect("no panic").is_ok());
    client.close().await;
    assert!(client.is_closed());
}

#[tokio::test(start_paused = true)]
async fn nobody_reconnects_for_clients_that_are_gone() {
    let (client, door, peer) = pair(&Config::default()).await;
    drop(peer);
    settle().await;
    drop(client);
    sleep(Duration::from_secs(60)).await;
    assert!(door.tries() <= 2);
}

#[tokio::test(start_paused = true)]
async fn several_connections_take_turns_and_stand_in_for_each_other() {
    let door = Door::default();
    let config = Config::default().connections(2);
    let (mut first, mut second) = (door.admit(), door.admit());
    let greet = async {
        second.greet().await;
        first.greet().await;
    };
    let (client, ()) = tokio::join!(door.connect(&config), greet);
    let tasks = [start(&client, get("a")), start(&client, get("b"))];
    second.expect(&raw("a")).await;
    first.expect(&raw("b")).await;
    second.say(b"$1\r\nA\r\n").await;
    first.say(b"$1\r\nB\r\n").await;
    for task in tasks {
        task.await.expect("no panic").expect("a reply");
    }
    drop(second);
    settle().await;
    for _ in 0..3 {
        let task = start(&client, get("c"));
        first.expect(&raw("c")).await;
        first.say(b"$1\r\nC\r\n").await;
        assert_eq!(task.await.expect("no panic").expect("a reply").as_str(), Some("C"));
    }
    assert_eq!(client.connections().len(), 2);
    assert!(client.is_connected());
}

#[tokio::test(start_paused = true)]
async fn closing_does_not_wait_for_a_reply_that_never_comes() {
    // Of one command, and of more than a connection takes.
    for count in [1, 3000] {
        let (client, _door, mut peer) = pair(&Config::default()).await;
        let value = "v".repeat(1000);
        let unanswered: Vec<_> =
            (0..count).map(|_| start(&client, Command::new("SET").arg("k").arg(&value))).collect();
        peer.expect("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n").await;
        settle().await;
        let begin = Instant::now();
        timeout(Duration::from_secs(10), client.close()).await.expect("a deadline");
        assert_eq!(begin.elapsed().as_secs(), 3);
        let mut fates = Vec::new();
        for task in unanswered {
            let error = task.await.expect("no panic").expect_err("closed");
            assert!(error.to_string().contains("closed by this program"), "{error}");
            fates.push(error.fate());
        }
        assert!(fates.contains(&Fate::MayHaveRun) && (count == 1 || fates.contains(&Fate::NotSent)));
        assert!(client.is_closed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_ones_own_says_that_a_call_took_too_long() {
    let (client, door, _peer) = pair(&Config::default()).await;
    let mut own = door.admit();
    let (connection, ()) = tokio::join!(client.dedicated(), own.greet());
    let mut connection = connection.expect("connected");
    let command = get("k").timeout(Duration::from_secs(1));
    let error = connection.execute(command).await.expect_err("no reply");
    assert!(matches!(error, Error::TimedOut(_)), "{error:?}");
    let error = connection.command(["PING"]).await.expect_err("useless");
    assert_eq!(
        error.to_string(),
        "connection to test:1 lost: a call on it got no reply within 1s; the command was not sent"
    );
}
