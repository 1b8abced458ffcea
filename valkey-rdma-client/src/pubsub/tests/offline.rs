//! A subscriber without a connection: what its callers and the client's status report meanwhile.

use super::refused::serve_busily;
use super::*;
use crate::config::{Backoff, STABLE_AFTER};
use crate::error::Fate;
use crate::stats::State;

/// A subscriber with these subscriptions.
async fn holding(config: &Config, names: &[&str]) -> (Client, Subscriber, Door, Peer, Peer) {
    let (client, door, peer) = pair(config).await;
    let mut events = door.admit();
    let (subscriber, ()) = tokio::join!(client.subscriber(), events.greet());
    let subscriber = subscriber.expect("connected");
    hold(&subscriber, &mut events, names).await;
    (client, subscriber, door, peer, events)
}

/// With this time limit of commands, in seconds.
fn limited(limit: u64) -> Config {
    Config::default().command_timeout(Duration::from_secs(limit))
}

/// The states of the client's subscribers.
fn states(client: &Client) -> Vec<State> {
    let connections = client.connections();
    let subscribers = connections.iter().filter(|connection| connection.purpose == Purpose::Subscriber);
    subscribers.map(|connection| connection.state).collect()
}

#[tokio::test(start_paused = true)]
async fn a_lost_subscriber_is_listed_as_reconnecting() {
    let (client, _subscriber, door, _peer, events) = subscribed(10, SlowConsumer::Drop).await;
    assert_eq!(states(&client), [State::Connected]);
    drop(events);
    settle().await;
    assert_eq!(states(&client), [State::Reconnecting]);
    assert!(client.connections().iter().all(|connection| connection.stats.is_none()));
    let mut events = door.admit();
    events.greet().await;
    settle().await;
    assert_eq!(states(&client), [State::Connected]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_subscriber_that_was_dropped_is_listed_no_more() {
    let (client, subscriber, _door, _peer, events) = subscribed(10, SlowConsumer::Drop).await;
    drop(events);
    settle().await;
    drop(subscriber);
    settle().await;
    assert_eq!(states(&client), []);
}

const REFUSED: &str =
    "cannot connect to test:1 over tcp: connection refused; is a server listening on this port?";

/// Those whose time is up are not requested later.
#[tokio::test(start_paused = true)]
async fn changes_wait_for_a_connection_with_bounded_patience_and_learn_why() {
    let config = Config::default();
    let (_client, subscriber, door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    hold(&subscriber, &mut events, &["a", "b"]).await;
    let sent = subscriber.subscribe(Subscription::Channel, ["sent"]);
    let lose = async {
        events.expect(&subscribe(&["sent"])).await;
        drop(events);
        settle().await;
        let begin = Instant::now();
        let outcomes = tokio::join!(
            subscriber.subscribe(Subscription::Channel, ["c"]),
            subscriber.unsubscribe(Subscription::Channel, ["b"]),
            subscriber.subscribe(Subscription::Channel, ["d"]),
            subscriber.unsubscribe(Subscription::Channel, ["d"])
        );
        assert_eq!(Some(begin.elapsed().as_secs()), config.offline_timeout.map(|limit| limit.as_secs()));
        outcomes
    };
    let (sent, (one, two, three, four)) = tokio::join!(sent, lose);
    // Also the one that was sent: subscriptions end with their connection.
    for outcome in [sent, one, two, three, four] {
        let error = outcome.expect_err("no connection");
        assert_eq!((error.to_string().as_str(), error.fate()), (REFUSED, Fate::NotSent));
    }

    let mut events = door.admit();
    events.greet().await;
    events.expect(&subscribe(&["a", "b"])).await;
    events.say(&[confirmed("a"), confirmed("b")].concat()).await;
    assert!(timeout(Duration::from_secs(9), events.0.read(&mut [0; 1])).await.is_err(), "nothing else");
}

/// The command's own limit is shorter than the wait for a connection.
#[tokio::test(start_paused = true)]
async fn a_change_that_times_out_without_a_connection_says_why() {
    let (_client, subscriber, door, _peer, events) = holding(&limited(3), &["a"]).await;
    drop(events);
    settle().await;
    let error = subscriber.subscribe(Subscription::Channel, ["b"]).await.expect_err("no connection");
    assert_eq!((error.to_string().as_str(), error.fate()), (REFUSED, Fate::NotSent));
    let mut events = door.admit();
    events.greet().await;
    events.expect(&subscribe(&["a"])).await;
    events.say(&confirmed("a")).await;
    assert!(timeout(Duration::from_secs(9), events.0.read(&mut [0; 1])).await.is_err(), "nothing else");
}

/// It is the server's answer, and waiting does not change it.
#[tokio::test(start_paused = true)]
async fn a_refused_login_fails_changes_at_once() {
    let (_client, subscriber, door, _peer, events) = subscribed(10, SlowConsumer::Drop).await;
    drop(events);
    settle().await;
    let change = subscriber.subscribe(Subscription::Channel, ["a"]);
    let refuse = async {
        let mut events = door.admit();
        events.expect(HELLO).await;
        events.say(b"-WRONGPASS no\r\n-NOAUTH no\r\n-NOAUTH no\r\n-NOAUTH no\r\n").await;
        events
    };
    let begin = Instant::now();
    let (outcome, _events) = tokio::join!(change, refuse);
    let error = outcome.expect_err("refused");
    assert_eq!(error.server().map(|error| &*error.code), Some("WRONGPASS"));
    assert_eq!(error.fate(), Fate::NotSent);
    assert!(begin.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_refused_login_is_reported_once_for_each_loss() {
    let (_client, mut subscriber, door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    hold(&subscriber, &mut events, &["a"]).await;
    for _ in 0..2 {
        drop(events);
        let mut refused = Vec::new();
        for _ in 0..2 {
            let mut events = door.admit();
            events.expect(HELLO).await;
            events.say(b"-WRONGPASS no\r\n-NOAUTH no\r\n-NOAUTH no\r\n-NOAUTH no\r\n").await;
            refused.push(events);
        }
        let event = next(&mut subscriber).await;
        assert!(matches!(&event, Event::LoginRefused { error } if error.code == "WRONGPASS"), "{event:?}");
        events = door.admit();
        events.greet().await;
        events.expect(&subscribe(&["a"])).await;
        events.say(&confirmed("a")).await;
        assert_eq!(next(&mut subscriber).await, Event::Reconnected, "and nothing else");
    }
}

/// It has no caller that could repeat it, so its wait has no end.
#[tokio::test(start_paused = true)]
async fn a_change_whose_caller_has_gone_away_is_kept() {
    let (_client, subscriber, door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    let change = subscriber.subscribe(Subscription::Channel, ["a"]);
    assert!(timeout(Duration::from_secs(1), change).await.is_err());
    events.expect(&subscribe(&["a"])).await;
    drop(events);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut events = door.admit();
    events.greet().await;
    events.expect(&subscribe(&["a"])).await;
}

/// A subscriber that holds `a`. The caller of `change` goes away, and a busy server refuses it.
async fn refused_without_caller<T>(
    config: &Config,
    sent: &str,
    change: impl AsyncFnOnce(&Subscriber) -> T,
) -> (Client, Subscriber, Door, Peer, Peer) {
    let mut held = holding(config, &["a"]).await;
    let (_, subscriber, .., events) = &mut held;
    assert!(timeout(Duration::from_secs(1), change(subscriber)).await.is_err());
    events.expect(sent).await;
    events.say(b"-BUSY a script runs\r\n").await;
    held
}

/// The refused subscription stays wanted, and the others go on.
#[tokio::test(start_paused = true)]
async fn a_busy_server_keeps_its_connection_if_the_caller_of_a_change_has_gone_away() {
    for config in [Config::default().reconnect(None), Config::default()] {
        let reconnects = config.reconnect.is_some();
        let change =
            async |subscriber: &Subscriber| subscriber.subscribe(Subscription::Channel, ["a", "b"]).await;
        let (_client, mut subscriber, door, _peer, mut events) =
            refused_without_caller(&config, &subscribe(&["a", "b"]), change).await;
        let refused = next(&mut subscriber).await;
        let is_b =
            matches!(&refused, Event::Refused { name, error, .. } if name == "b" && error.code == "BUSY");
        assert!(is_b, "{refused:?}");
        let tries = door.tries();
        events.say(&published("a")).await;
        assert!(is_message(&next(&mut subscriber).await, "a"));
        assert_eq!(door.tries(), tries, "no new connection");
        if reconnects {
            drop(events);
            let mut events = door.admit();
            events.greet().await;
            events.expect(&subscribe(&["a", "b"])).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_subscription_that_a_busy_server_refuses_changes_nothing() {
    let change = async |subscriber: &Subscriber| subscriber.unsubscribe(Subscription::Channel, ["a"]).await;
    let unsubscribe = "*2\r\n$11\r\nUNSUBSCRIBE\r\n$1\r\na\r\n";
    let (_client, mut subscriber, door, _peer, mut events) =
        refused_without_caller(&Config::default(), unsubscribe, change).await;
    events.say(&published("a")).await;
    assert!(is_message(&next(&mut subscriber).await, "a"));
    drop(events);
    let mut events = door.admit();
    events.greet().await;
    events.expect(&subscribe(&["a"])).await;
}

/// The server is reached again and again meanwhile.
#[tokio::test(start_paused = true)]
async fn a_change_fails_if_the_server_stays_busy() {
    let config = Config::default().command_timeout(None);
    let (_client, subscriber, door, _peer, events) = holding(&config, &["a"]).await;
    drop(events);
    settle().await;
    let change = timeout(Duration::from_secs(600), subscriber.subscribe(Subscription::Channel, ["b"]));
    let outcome = tokio::select! {
        outcome = change => outcome.expect("its wait has an end"),
        () = serve_busily(&door) => unreachable!("it is busy for ever"),
    };
    let error = outcome.expect_err("not taken");
    assert_eq!(error.server().map(|error| &*error.code), Some("BUSY"), "{error}");
}

/// Its error says that it may have run, so it stays requested.
#[tokio::test(start_paused = true)]
async fn a_change_that_times_out_while_a_pong_is_owed_is_requested_then() {
    let (_client, subscriber, _door, _peer, mut events) = holding(&limited(1), &["a"]).await;
    events.expect(PING).await;
    let error = subscriber.subscribe(Subscription::Channel, ["d"]).await.expect_err("not taken");
    assert_eq!(error.fate(), Fate::MayHaveRun);
    events.say(b"+PONG\r\n").await;
    let sent = timeout(Duration::from_secs(9), events.expect(&subscribe(&["d"]))).await;
    sent.expect("requested");
}

/// As above, and the PONG never comes.
#[tokio::test(start_paused = true)]
async fn a_change_that_times_out_before_the_connection_is_lost_is_requested_on_the_next() {
    let (_client, subscriber, door, _peer, mut events) = holding(&limited(1), &["a"]).await;
    events.expect(PING).await;
    let error = subscriber.subscribe(Subscription::Channel, ["d"]).await.expect_err("not taken");
    assert_eq!(error.fate(), Fate::MayHaveRun);
    drop(events);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut events = door.admit();
    events.greet().await;
    events.expect(&(subscribe(&["a"]) + &subscribe(&["d"]))).await;
}

/// It fails without a connection while there are too many unconfirmed to take it: it is not requested later.
#[tokio::test(start_paused = true)]
async fn a_change_that_failed_in_an_outage_before_it_was_taken_is_not_requested() {
    let (_client, subscriber, door, _peer, events) = holding(&limited(3), &["a"]).await;
    let mut kept = String::new();
    let mut answer = confirmed("a");
    for number in 0..changes::MAX_PENDING {
        let name = format!("kept:{number}");
        let change = subscriber.subscribe(Subscription::Channel, [&name]);
        assert!(timeout(Duration::ZERO, change).await.is_err(), "its caller goes away");
        settle().await;
        kept += &subscribe(&[&name]);
        answer.extend(confirmed(&name));
    }
    drop(events);
    settle().await;
    let error = subscriber.subscribe(Subscription::Channel, ["d"]).await.expect_err("no connection");
    assert_eq!(error.fate(), Fate::NotSent);
    let mut events = door.admit();
    events.greet().await;
    events.expect(&(subscribe(&["a"]) + &kept)).await;
    events.say(&answer).await;
    assert!(timeout(Duration::from_secs(9), events.0.read(&mut [0; 1])).await.is_err(), "nothing else");
}

/// Requests two changes without a connection, one a second after the other. Both fail, and only what held before is restored.
async fn fail_two(first_subscribes: bool, second_subscribes: bool, name: &str) {
    let (_client, subscriber, door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    hold(&subscriber, &mut events, &["a", "b"]).await;
    drop(events);
    settle().await;
    let change = async |subscribes| match subscribes {
        true => subscriber.subscribe(Subscription::Channel, [name]).await,
        false => subscriber.unsubscribe(Subscription::Channel, [name]).await,
    };
    let second = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        change(second_subscribes).await
    };
    let (first, second) = tokio::join!(change(first_subscribes), second);
    for outcome in [first, second] {
        assert_eq!(outcome.expect_err("no connection").fate(), Fate::NotSent);
    }
    let mut events = door.admit();
    events.greet().await;
    events.expect(&subscribe(&["a", "b"])).await;
    events.say(&[confirmed("a"), confirmed("b")].concat()).await;
    assert!(timeout(Duration::from_secs(9), events.0.read(&mut [0; 1])).await.is_err(), "nothing else");
}

#[tokio::test(start_paused = true)]
async fn changes_of_one_name_that_fail_one_after_the_other_change_nothing() {
    fail_two(true, false, "d").await;
    fail_two(false, true, "b").await;
}

#[tokio::test(start_paused = true)]
async fn a_repeated_subscription_that_fails_twice_is_not_requested() {
    fail_two(true, true, "d").await;
}

#[tokio::test(start_paused = true)]
async fn a_repeated_end_of_a_subscription_that_fails_twice_takes_nothing_away() {
    fail_two(false, false, "b").await;
}

/// Otherwise messages are lost meanwhile.
#[tokio::test(start_paused = true)]
async fn a_subscriber_connects_as_soon_as_another_connection_finds_the_server_back() {
    let (client, subscriber, door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    hold(&subscriber, &mut events, &["a"]).await;
    tokio::time::sleep(2 * STABLE_AFTER).await;
    drop(events);
    // Its waits are long by now.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let now = Instant::now();
    let (mut events, mut dedicated) = (door.admit(), door.admit());
    let (dedicated, ()) = tokio::join!(client.dedicated(), dedicated.greet());
    let _dedicated = dedicated.expect("connected");
    events.greet().await;
    events.expect(&subscribe(&["a"])).await;
    assert_eq!(now.elapsed(), Duration::ZERO, "without a wait");
}

/// As commands on the shared connection do, however rare attempts are without them.
#[tokio::test(start_paused = true)]
async fn a_change_that_waits_meets_an_attempt_to_connect_before_it_fails() {
    let rare = Backoff::default().first(Duration::from_secs(3600)).max(Duration::from_secs(3600));
    for (backoff, limit) in
        [(rare.first(Duration::from_millis(100)), 10), (rare.first(Duration::from_secs(1)), 1000)]
    {
        let config = Config::default().reconnect(backoff).offline_timeout(Duration::from_secs(limit));
        let (client, door, _peer) = pair(&config.command_timeout(None)).await;
        let mut events = door.admit();
        let (subscriber, ()) = tokio::join!(client.subscriber(), events.greet());
        let subscriber = subscriber.expect("connected");
        tokio::time::sleep(2 * STABLE_AFTER).await;
        drop(events);
        // Attempts are rare by now.
        tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
        let mut events = door.admit();
        let confirm = async {
            events.greet().await;
            events.expect(&subscribe(&["a"])).await;
            events.say(&confirmed("a")).await;
        };
        let (outcome, _served) = tokio::join!(
            subscriber.subscribe(Subscription::Channel, ["a"]),
            timeout(Duration::from_secs(2 * limit), confirm)
        );
        outcome.expect("subscribed");
    }
}
