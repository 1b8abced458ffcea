use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_core::Stream;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::*;
use crate::client::Client;
use crate::config::Config;
use crate::error::Error;
use crate::link::tests::{Door, HELLO, PING, Peer, pair, settle};
use crate::link::{Connector, RawConnection, Redialer};
use crate::stats::Purpose;
use valkey_rdma_transport::sync::Mutex;

mod offline;
mod refused;

/// A client with a subscriber, and the far ends of their connections.
async fn subscribed(capacity: usize, slow: SlowConsumer) -> (Client, Subscriber, Door, Peer, Peer) {
    let (client, door, peer) = pair(&Config::default()).await;
    let mut events = door.admit();
    let (subscriber, ()) = tokio::join!(client.subscriber_with(capacity, slow), events.greet());
    (client, subscriber.expect("connected"), door, peer, events)
}

fn subscribe(names: &[&str]) -> String {
    let mut text = format!("*{}\r\n$9\r\nSUBSCRIBE\r\n", names.len() + 1);
    for name in names {
        text += &format!("${}\r\n{name}\r\n", name.len());
    }
    text
}

fn confirmed(name: &str) -> Vec<u8> {
    format!(">3\r\n$9\r\nsubscribe\r\n${}\r\n{name}\r\n:1\r\n", name.len()).into_bytes()
}

fn published(name: &str) -> Vec<u8> {
    format!(">3\r\n$7\r\nmessage\r\n${}\r\n{name}\r\n$1\r\nx\r\n", name.len()).into_bytes()
}

/// Subscribes, and the server confirms.
async fn hold(subscriber: &Subscriber, peer: &mut Peer, names: &[&str]) {
    let confirm = async {
        peer.expect(&subscribe(names)).await;
        for name in names {
            peer.say(&confirmed(name)).await;
        }
    };
    let (outcome, ()) = tokio::join!(subscriber.subscribe(Subscription::Channel, names), confirm);
    outcome.expect("confirmed");
}

async fn next(subscriber: &mut Subscriber) -> Event {
    timeout(Duration::from_secs(60), subscriber.next()).await.expect("an event").expect("not the end")
}

fn is_message(event: &Event, channel: &str) -> bool {
    matches!(event, Event::Message(message) if message.channel == channel)
}

const NO: &[u8] = b"-NOPERM no permissions to access a channel\r\n";

#[tokio::test(start_paused = true)]
async fn a_full_queue_does_not_keep_subscriptions_from_coming_back() {
    for slow in [SlowConsumer::Drop, SlowConsumer::Disconnect] {
        let (_client, mut subscriber, door, _peer, mut events) = subscribed(1, slow).await;
        hold(&subscriber, &mut events, &["a"]).await;
        events.say(&published("a")).await;
        settle().await;
        drop(events);
        let mut events = door.admit();
        events.greet().await;
        events.expect(&subscribe(&["a"])).await;
        events.say(&confirmed("a")).await;
        settle().await;
        assert!(is_message(&next(&mut subscriber).await, "a"));
        assert_eq!(next(&mut subscriber).await, Event::Reconnected);
        events.say(&published("a")).await;
        assert!(is_message(&next(&mut subscriber).await, "a"));
        assert_eq!(subscriber.missed(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_order_takes_nothing_away_that_held_before() {
    let (_client, subscriber, door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    hold(&subscriber, &mut events, &["a"]).await;
    let refuse = async {
        events.expect(&subscribe(&["a", "b"])).await;
        events.say(NO).await;
    };
    let (outcome, ()) = tokio::join!(subscriber.subscribe(Subscription::Channel, ["a", "b"]), refuse);
    assert!(matches!(outcome, Err(Error::Server(_))), "{outcome:?}");
    drop(events);
    let mut events = door.admit();
    events.greet().await;
    events.expect(&subscribe(&["a"])).await;
    events.say(&confirmed("a")).await;
    assert_eq!(timeout(Duration::from_secs(9), events.0.read(&mut [0; 1])).await.ok().map(drop), None);
}

/// A server stops reading while it cannot write.
#[tokio::test(start_paused = true)]
async fn messages_are_read_while_an_order_is_written() {
    let (_client, subscriber, _door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    let names: Vec<_> = (0..1000).map(|n| format!("channel:{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let flood = async {
        events.0.write_all(&published("a").repeat(10_000)).await.expect("open");
        events.expect(&subscribe(&names)).await;
        for name in &names {
            events.say(&confirmed(name)).await;
        }
    };
    let both = async { tokio::join!(subscriber.subscribe(Subscription::Channel, &names), flood) };
    let (outcome, ()) = timeout(Duration::from_secs(10), both).await.expect("no deadlock");
    outcome.expect("confirmed");
    assert_eq!(subscriber.missed(), 10_000 - 10);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_subscriber_closes_a_connection_that_takes_nothing() {
    let (_client, subscriber, _door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    let name = "x".repeat(100_000);
    let order = subscriber.subscribe(Subscription::Channel, [&name]);
    assert!(timeout(Duration::from_secs(1), order).await.is_err());
    drop(subscriber);
    let mut rest = Vec::new();
    let end = timeout(Duration::from_secs(10), events.0.read_to_end(&mut rest)).await;
    end.expect("the end").expect("in good order");
    assert!(rest.len() < 10_000);
}

#[tokio::test(start_paused = true)]
async fn the_stream_tells_its_end_once() {
    let (_client, mut subscriber, _door, _peer, mut events) = subscribed(1, SlowConsumer::Disconnect).await;
    hold(&subscriber, &mut events, &["a"]).await;
    events.say(&published("a").repeat(2)).await;
    let mut poll = async || std::future::poll_fn(|cx| Pin::new(&mut subscriber).poll_next(cx)).await;
    settle().await;
    assert!(matches!(poll().await, Some(Ok(Event::Message(_)))));
    assert!(matches!(poll().await, Some(Err(Error::Lost(_)))));
    assert!(poll().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_every_connection_at_once_is_not_hurried() {
    let (_client, _subscriber, door, _peer, events) = subscribed(10, SlowConsumer::Drop).await;
    drop(events);
    let serve = async {
        loop {
            door.admit().greet().await;
        }
    };
    assert!(timeout(Duration::from_secs(60), serve).await.is_err());
    assert!(door.tries() < 60, "{} connections within 60 s", door.tries());
}

#[tokio::test(start_paused = true)]
async fn connecting_stops_with_the_subscriber() {
    let dials = Arc::new(());
    let (streams, mut far) = (Mutex::new(Vec::new()), Vec::new());
    for _ in 0..2 {
        let (ours, peer) = tokio::io::duplex(4096);
        streams.lock().expect("no panic").push(ours);
        far.push(Peer(peer));
    }
    let dialer = {
        let dials = dials.clone();
        move || {
            let (stream, dial) = (streams.lock().expect("no panic").pop(), dials.clone());
            async move {
                let _dial = dial;
                match stream {
                    Some(stream) => Ok(stream),
                    None => std::future::pending().await,
                }
            }
        }
    };
    let (mut events, mut shared) = (far.remove(0), far.remove(0));
    let config = Config::default();
    let (client, ()) =
        tokio::join!(Client::connect_with_dialer("valkey://test:1", &config, dialer), shared.greet());
    let client = client.expect("connected");
    let (subscriber, ()) = tokio::join!(client.subscriber(), events.greet());
    let subscriber = subscriber.expect("connected");
    let idle = Arc::strong_count(&dials);
    drop(events);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(Arc::strong_count(&dials), idle + 1, "it connects");
    drop(subscriber);
    settle().await;
    assert_eq!(Arc::strong_count(&dials), idle);
}

fn shard(verb: &str, name: &str, ended: bool) -> Vec<u8> {
    let (len, kind) = (verb.len(), if ended { '>' } else { '*' });
    if ended {
        format!("{kind}3\r\n${len}\r\n{verb}\r\n$1\r\n{name}\r\n:0\r\n").into_bytes()
    } else {
        format!("{kind}2\r\n${len}\r\n{}\r\n$1\r\n{name}\r\n", verb.to_uppercase()).into_bytes()
    }
}

/// A slot moves: the server ends subscriptions of its own accord, with the word of a confirmation.
#[tokio::test(start_paused = true)]
async fn the_end_of_another_subscription_is_no_confirmation() {
    let (_client, mut subscriber, _door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    for name in ["a", "b"] {
        let confirm = async {
            events.expect(&String::from_utf8(shard("ssubscribe", name, false)).expect("text")).await;
            events.say(&shard("ssubscribe", name, true)).await;
        };
        let (outcome, ()) = tokio::join!(subscriber.subscribe(Subscription::Shard, [name]), confirm);
        outcome.expect("confirmed");
    }
    let end = async {
        events.expect(&String::from_utf8(shard("sunsubscribe", "a", false)).expect("text")).await;
        events.say(&shard("sunsubscribe", "b", true)).await;
        events.say(&shard("sunsubscribe", "a", true)).await;
    };
    let (outcome, ()) = tokio::join!(subscriber.unsubscribe(Subscription::Shard, ["a"]), end);
    outcome.expect("confirmed");
    let event = next(&mut subscriber).await;
    assert!(matches!(&event, Event::Ended { name, .. } if name == "b"), "{event:?}");
}

/// A slot of a cluster whose node changes when the test says so.
struct Slot {
    connector: Arc<Connector>,
    moves: watch::Receiver<()>,
    /// How often it was to forget redirections.
    settled: Arc<AtomicUsize>,
}

impl Source for Slot {
    const IS_SLOT: bool = true;

    fn redialer(&self) -> Option<Redialer> {
        Redialer::of(&self.connector)
    }

    fn config(&self) -> &Config {
        &self.connector.config
    }

    async fn connect(&mut self) -> Result<RawConnection, Error> {
        Ok(self.connector.connect(Purpose::Subscriber).await?)
    }

    fn moved(&self, _raw: &RawConnection) -> BoxFuture<'static, ()> {
        let mut moves = self.moves.clone();
        moves.mark_unchanged();
        Box::pin(async move { moves.changed().await.expect("the test goes on") })
    }

    fn settled(&mut self) {
        self.settled.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is known of redirections ends with the last subscription: the next one, perhaps hours later, begins anew.
#[tokio::test(start_paused = true)]
async fn a_slot_whose_only_subscription_is_refused_forgets_its_redirections() {
    let (client, door, _peer) = pair(&Config::default()).await;
    let (shared, events) = Shared::new("test".into(), 10, SlowConsumer::Drop);
    let status = Status::new("test".into(), Box::new(|| None));
    let (handle, task) = Task::new(Some(1), &shared, status, None).expect("not the end");
    let (moves, settled) = (watch::Sender::default(), Arc::<AtomicUsize>::default());
    let connector = client.server().connector().clone();
    let source = Slot { connector, moves: moves.subscribe(), settled: settled.clone() };
    tokio::spawn(task.run(source, None));
    let subscriber = Subscriber::new(shared, events, handle, None, None);
    settle().await;
    let before = settled.load(Ordering::Relaxed);
    let mut peer = door.admit();
    let refuse = async {
        peer.greet().await;
        peer.expect(&subscribe(&["a"])).await;
        peer.say(b"-NOPERM no permissions to access a channel\r\n").await;
    };
    let (outcome, ()) = tokio::join!(subscriber.subscribe(Subscription::Channel, ["a"]), refuse);
    outcome.expect_err("refused");
    settle().await;
    assert_eq!(settled.load(Ordering::Relaxed), before + 1);
}

/// It is frozen, and its slot has gone to a replica.
#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_confirm_is_left_when_its_slot_moves() {
    let (client, door, _peer) = pair(&Config::default()).await;
    let (shared, events) = Shared::new("test".into(), 10, SlowConsumer::Drop);
    let status = Status::new("test".into(), Box::new(|| None));
    let (handle, task) = Task::new(Some(1), &shared, status, None).expect("not the end");
    let moves = watch::Sender::default();
    let connector = client.server().connector().clone();
    let source = Slot { connector, moves: moves.subscribe(), settled: Arc::default() };
    tokio::spawn(task.run(source, None));
    let mut subscriber = Subscriber::new(shared, events, handle, None, None);
    let mut peer = door.admit();
    let confirm = async {
        peer.greet().await;
        peer.expect(&subscribe(&["a"])).await;
        peer.say(&confirmed("a")).await;
        peer
    };
    let (outcome, peer) = tokio::join!(subscriber.subscribe(Subscription::Channel, ["a"]), confirm);
    outcome.expect("confirmed");
    drop(peer);
    let mut frozen = door.admit();
    frozen.greet().await;
    frozen.expect(&subscribe(&["a"])).await;
    let begin = Instant::now();
    moves.send_replace(());
    let mut next_node = door.admit();
    next_node.greet().await;
    next_node.expect(&subscribe(&["a"])).await;
    next_node.say(&confirmed("a")).await;
    assert_eq!(next(&mut subscriber).await, Event::Reconnected);
    assert!(begin.elapsed() < Duration::from_secs(1), "not only when it counts as silent");
}

/// A server that publishes nothing looks the same as a frozen one, whose kernel keeps the connection alive over TCP.
#[tokio::test(start_paused = true)]
async fn a_subscriber_leaves_a_server_that_answers_nothing() {
    let (_client, mut subscriber, door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    hold(&subscriber, &mut events, &["a"]).await;
    for pong in
        [&b"+PONG\r\n"[..], b"*2\r\n$4\r\npong\r\n$0\r\n\r\n", b"-NOPERM this user may not run PING\r\n"]
    {
        events.expect(PING).await;
        events.say(pong).await;
    }
    hold(&subscriber, &mut events, &["b"]).await;
    events.expect(PING).await;
    let mut next_connection = door.admit();
    assert_eq!(events.0.read(&mut [0; 1]).await.expect("closed"), 0);
    next_connection.greet().await;
    next_connection.expect(&subscribe(&["a", "b"])).await;
    next_connection.say(&[confirmed("a"), confirmed("b")].concat()).await;
    assert_eq!(next(&mut subscriber).await, Event::Reconnected);
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_hears_something_asks_nothing() {
    let (_client, mut subscriber, _door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    hold(&subscriber, &mut events, &["a"]).await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(9)).await;
        events.say(&published("a")).await;
        assert!(is_message(&next(&mut subscriber).await, "a"));
    }
    assert!(timeout(Duration::ZERO, events.0.read(&mut [0; 1])).await.is_err(), "nothing was sent");
}

/// A change of subscriptions that comes meanwhile is sent when the PING is answered: an error reply is never taken for the other's.
#[tokio::test(start_paused = true)]
async fn a_refused_ping_concerns_no_subscription() {
    let (_client, subscriber, _door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    events.expect(PING).await;
    let refuse = async {
        settle().await;
        events.say(b"-NOPERM this user may not run PING\r\n").await;
        events.expect(&subscribe(&["a"])).await;
        events.say(&confirmed("a")).await;
    };
    let (outcome, ()) = tokio::join!(subscriber.subscribe(Subscription::Channel, ["a"]), refuse);
    outcome.expect("confirmed");
}

/// It owes an answer already: that is not asked for again.
#[tokio::test(start_paused = true)]
async fn a_subscription_that_is_never_confirmed_ends_the_connection() {
    let (_client, subscriber, door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    let order = subscriber.subscribe(Subscription::Channel, ["a"]);
    let lose = async {
        events.expect(&subscribe(&["a"])).await;
        let mut next_connection = door.admit();
        assert_eq!(events.0.read(&mut [0; 1]).await.expect("closed"), 0);
        next_connection.greet().await;
        next_connection.expect(&subscribe(&["a"])).await;
        next_connection.say(&confirmed("a")).await;
        next_connection
    };
    let (outcome, _next_connection) = tokio::join!(order, lose);
    assert!(outcome.is_err(), "the command's own limit is shorter: {outcome:?}");
}

/// Its end comes later than a silent server is left.
#[tokio::test(start_paused = true)]
async fn a_large_message_that_comes_slowly_is_no_silence() {
    let (_client, mut subscriber, _door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    hold(&subscriber, &mut events, &["a"]).await;
    events.say(b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$30\r\n").await;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(9)).await;
        events.say(b"x").await;
    }
    events.say(b"\r\n").await;
    assert!(is_message(&next(&mut subscriber).await, "a"));
}
