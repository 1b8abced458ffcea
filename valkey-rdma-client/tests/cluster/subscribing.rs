//! A cluster subscriber while it subscribes: messages of other subscriptions go on, and failures say why.

use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;
use valkey_rdma_client::pubsub::{Event, SlowConsumer, Subscription};
use valkey_rdma_client::{Client, Config, Error, Fate, LostCause, Subscriber};

use crate::scripted::Node;
use crate::target::{PATIENCE, client_of, mocks, unhurried};

const CAPACITY: usize = 10;

async fn client(node: &Node, config: &Config) -> Client {
    Client::connect_with([node.url()], config).await.expect("connected")
}

async fn next(subscriber: &mut Subscriber) -> Event {
    timeout(PATIENCE, subscriber.next()).await.expect("an event").expect("not the end")
}

/// More messages than all queues hold. The program takes each before the next is published.
async fn keep_up(node: &Node, subscriber: &mut Subscriber) {
    for number in 0..10 * CAPACITY {
        node.publish("busy", &number.to_string());
        match next(subscriber).await {
            Event::Message(message) => assert_eq!(message.payload, number.to_string()),
            other => panic!("{other:?}"),
        }
    }
}

/// The server confirms the channels, but not yet the patterns.
#[tokio::test]
async fn messages_arrive_while_subscriptions_are_restored() {
    for slow in [SlowConsumer::Drop, SlowConsumer::Disconnect] {
        let node = Node::start().await;
        let mut subscriber =
            client(&node, &unhurried()).await.subscriber_with(CAPACITY, slow).await.expect("open");
        subscriber.subscribe(Subscription::Channel, ["busy"]).await.expect("subscribed");
        subscriber.subscribe(Subscription::Pattern, ["p*"]).await.expect("subscribed");
        node.hold("psubscribe");
        node.hang_up();
        node.ordered("psubscribe p*", 2).await;
        keep_up(&node, &mut subscriber).await;
        node.release("psubscribe");
        assert_eq!(next(&mut subscriber).await, Event::Reconnected);
        keep_up(&node, &mut subscriber).await;
    }
}

/// Its caller has gone away, and takes events instead.
#[tokio::test]
async fn messages_arrive_while_a_change_waits_for_the_server() {
    for (held, order) in [("psubscribe", "psubscribe p*"), ("unsubscribe", "unsubscribe idle")] {
        let node = Node::start().await;
        let client = client(&node, &unhurried()).await;
        let mut subscriber = client.subscriber_with(CAPACITY, SlowConsumer::Drop).await.expect("open");
        subscriber.subscribe(Subscription::Channel, ["busy", "idle"]).await.expect("subscribed");
        node.hold(held);
        let change = async {
            match held {
                "psubscribe" => subscriber.subscribe(Subscription::Pattern, ["p*"]).await,
                _ => subscriber.unsubscribe(Subscription::Channel, ["idle"]).await,
            }
        };
        tokio::select! {
            outcome = change => panic!("the server has not confirmed: {outcome:?}"),
            () = node.ordered(order, 1) => {}
        }
        keep_up(&node, &mut subscriber).await;
    }
}

/// Its caller takes them: the call does not borrow the subscriber.
#[tokio::test]
async fn messages_are_taken_while_a_call_waits_for_the_server() {
    let node = Node::start().await;
    let client = client(&node, &unhurried()).await;
    let mut subscriber = client.subscriber_with(CAPACITY, SlowConsumer::Drop).await.expect("open");
    subscriber.subscribe(Subscription::Channel, ["busy"]).await.expect("subscribed");
    node.hold("psubscribe");
    let mut change = pin!(subscriber.subscribe(Subscription::Pattern, ["p*"]));
    tokio::select! {
        outcome = &mut change => panic!("the server has not confirmed: {outcome:?}"),
        () = node.ordered("psubscribe p*", 1) => {}
    }
    keep_up(&node, &mut subscriber).await;
    node.release("psubscribe");
    change.await.expect("subscribed");
}

/// As a `Subscriber` does.
#[tokio::test]
async fn a_program_that_is_too_slow_ends_the_subscriber_if_it_wants_that() {
    let node = Node::start().await;
    let client = client(&node, &unhurried()).await;
    let mut subscriber = client.subscriber_with(1, SlowConsumer::Disconnect).await.expect("open");
    subscriber.subscribe(Subscription::Channel, ["busy"]).await.expect("subscribed");
    for _ in 0..10 {
        node.publish("busy", "x");
    }
    let error = loop {
        match timeout(PATIENCE, subscriber.next()).await.expect("an event") {
            Ok(Event::Message(_)) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    let is_too_slow =
        |error: &Error| matches!(error, Error::Lost(lost) if matches!(lost.cause(), LostCause::SlowConsumer));
    assert!(is_too_slow(&error), "{error:?}");
    let error = subscriber.subscribe(Subscription::Channel, ["more"]).await.expect_err("ended");
    assert!(is_too_slow(&error) && error.fate() == Fate::NotSent, "{error:?}");
    assert!(is_too_slow(&subscriber.next().await.expect_err("it stays so")));
    assert_eq!(node.orders(), ["subscribe busy"]);
    // The client goes on.
    let mut another = client.subscriber().await.expect("open");
    another.subscribe(Subscription::Channel, ["busy"]).await.expect("subscribed");
    node.publish("busy", "x");
    assert!(matches!(next(&mut another).await, Event::Message(_)));
}

/// The server's answer does not change by waiting: no limit of the client is needed.
#[tokio::test]
async fn a_refused_login_fails_a_subscription_at_once_with_what_the_server_says() {
    let node = Node::start().await;
    let config = unhurried().command_timeout(None).offline_timeout(None);
    let client = client(&node, &config).await;
    node.refuse_logins(true);
    let mut subscriber = client.subscriber().await.expect("open");
    let refused = subscriber.subscribe(Subscription::Channel, ["a"]);
    let error = timeout(PATIENCE, refused).await.expect("no wait without an end").expect_err("refused");
    assert_eq!(error.server().map(|error| &*error.code), Some("WRONGPASS"), "{error:?}");
    assert_eq!(error.fate(), Fate::NotSent);
    node.refuse_logins(false);
    subscriber.subscribe(Subscription::Channel, ["b"]).await.expect("subscribed");
    assert_eq!(node.orders(), ["subscribe b"], "the other one is not requested later");
    node.publish("b", "news");
    assert!(matches!(next(&mut subscriber).await, Event::Message(_)));
}

/// The server refuses the login for a subscription beside those that were lost.
#[tokio::test]
async fn a_refused_login_fails_a_subscription_beside_those_that_are_restored() {
    let node = Node::start().await;
    let client = client(&node, &unhurried()).await;
    let mut subscriber = client.subscriber().await.expect("open");
    subscriber.subscribe(Subscription::Channel, ["a"]).await.expect("subscribed");
    node.refuse_logins(true);
    node.hang_up();
    let error = subscriber.subscribe(Subscription::Channel, ["b"]).await.expect_err("refused");
    assert_eq!(error.server().map(|error| &*error.code), Some("WRONGPASS"), "{error:?}");
    node.refuse_logins(false);
    assert!(matches!(next(&mut subscriber).await, Event::LoginRefused { .. }));
    assert_eq!(next(&mut subscriber).await, Event::Reconnected);
    assert_eq!(node.orders(), ["subscribe a", "subscribe a"]);
}

/// Nothing listens there, and commands have no limit of their own.
#[tokio::test]
async fn a_subscription_waits_for_its_node_with_bounded_patience_and_learns_why() {
    let mocks = mocks().await;
    // A busy machine may need a while to see that nothing listens.
    let limits = unhurried().command_timeout(None).offline_timeout(Duration::from_secs(2));
    let cluster = client_of(&mocks, &limits).await;
    mocks.kill(0).await;
    let subscriber = cluster.subscriber().await.expect("open");
    let waits = subscriber.subscribe(Subscription::Shard, [mocks.key_of(0, 0)]);
    let error = timeout(PATIENCE, waits).await.expect("no wait without an end").expect_err("no node");
    assert!(matches!(error, Error::Connect(_)), "{error:?}");
    assert_eq!(error.fate(), Fate::NotSent);
}

/// The command's own limit is shorter than the wait for a connection.
#[tokio::test]
async fn a_subscription_that_times_out_without_a_connection_says_why_and_is_not_requested() {
    let mocks = mocks().await;
    let hurried = unhurried().command_timeout(Duration::from_millis(300));
    let cluster = client_of(&mocks, &hurried).await;
    mocks.kill(0).await;
    let late = mocks.key_of(0, 0);
    let subscriber = cluster.subscriber().await.expect("open");
    let error = subscriber.subscribe(Subscription::Shard, [&late]).await.expect_err("no node");
    assert!(matches!(error, Error::Connect(_)), "{error:?}");
    assert_eq!(error.fate(), Fate::NotSent);
    mocks.restart(0).await.expect("its port is free");
    // With a connection to the same slot, nothing else is requested.
    while subscriber.subscribe(Subscription::Shard, [format!("{{{late}}}other")]).await.is_err() {}
    assert_eq!(mocks.calls(0, "ssubscribe"), 1);
}
