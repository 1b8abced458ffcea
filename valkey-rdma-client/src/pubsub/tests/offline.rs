//! A subscriber without a connection: what its callers and the client's status report meanwhile.

use tokio::time::Instant;

use super::*;
use crate::error::Fate;
use crate::stats::State;

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
    let config = Config::default().command_timeout(Duration::from_secs(3));
    let (client, door, _peer) = pair(&config).await;
    let mut events = door.admit();
    let (subscriber, ()) = tokio::join!(client.subscriber(), events.greet());
    let subscriber = subscriber.expect("connected");
    hold(&subscriber, &mut events, &["a"]).await;
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
        events.say(b"-WRONGPASS no\r\n-NOAUTH no\r\n-NOAUTH no\r\n").await;
        events
    };
    let begin = Instant::now();
    let (outcome, _events) = tokio::join!(change, refuse);
    let error = outcome.expect_err("refused");
    assert_eq!(error.server().map(|error| &*error.code), Some("WRONGPASS"));
    assert_eq!(error.fate(), Fate::NotSent);
    assert!(begin.elapsed() < Duration::from_secs(1));
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
