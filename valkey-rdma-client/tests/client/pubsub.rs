//! Subscriptions, in RESP2 and RESP3.

use bytes::Bytes;
use valkey_rdma_client::pubsub::{Event, Message, SlowConsumer, Subscription};
use valkey_rdma_client::{Client, Config, Error, LostCause, Subscriber};

use crate::target::{Target, target};

async fn publish(client: &Client, channel: &str, payload: &str) -> i64 {
    client.command(["PUBLISH", channel, payload]).await.expect("published").convert().expect("a number")
}

/// Has the server close the subscriber's connection of this name.
async fn kill_subscriber(client: &Client, name: &str) {
    let list = client.command(["CLIENT", "LIST", "TYPE", "pubsub"]).await.expect("a list");
    let list: String = list.convert().expect("text");
    let line = list.lines().find(|line| line.contains(&format!("name={name} "))).expect("it is there");
    let id = line.split([' ', '=']).nth(1).expect("id=N");
    client.command(["CLIENT", "KILL", "ID", id]).await.expect("killed");
}

async fn message(subscriber: &mut Subscriber) -> Message {
    match subscriber.next().await.expect("an event") {
        Event::Message(message) => message,
        other => panic!("{other:?}"),
    }
}

async fn both_protocols(target: &Target) -> [Client; 2] {
    let resp2 = format!("{}?protocol=resp2", target.url);
    [target.client().await, Client::connect(resp2.as_str()).await.expect("connected")]
}

#[tokio::test]
async fn channels_patterns_and_shards_deliver_in_order() {
    let target = target().await;
    for client in both_protocols(&target).await {
        let (news, pattern) = (target.key("news"), target.key("w*"));
        let mut subscriber = client.subscriber().await.expect("connected");
        subscriber.subscribe(Subscription::Channel, [&news]).await.expect("subscribed");
        subscriber.subscribe(Subscription::Pattern, [&pattern]).await.expect("subscribed");
        subscriber.subscribe(Subscription::Shard, [&news]).await.expect("subscribed");
        assert_eq!(publish(&client, &news, "1").await, 1);
        assert_eq!(publish(&client, &target.key("weather"), "2").await, 1);
        client.command(["SPUBLISH", &news, "3"]).await.expect("published");

        let first = message(&mut subscriber).await;
        assert_eq!((&first.channel[..], &first.payload[..]), (news.as_bytes(), &b"1"[..]));
        let second = message(&mut subscriber).await;
        assert_eq!(second.pattern, Some(Bytes::from(pattern.clone())));
        assert_eq!(second.channel, target.key("weather"));
        assert_eq!(message(&mut subscriber).await.payload, "3");

        subscriber.unsubscribe(Subscription::Channel, [&news]).await.expect("unsubscribed");
        assert_eq!(publish(&client, &news, "4").await, 0);
    }
}

#[tokio::test]
async fn a_slow_subscriber_is_told_what_it_missed() {
    let target = target().await;
    let client = target.client().await;
    let news = target.key("news");
    let mut subscriber = client.subscriber_with(10, SlowConsumer::Drop).await.expect("connected");
    subscriber.subscribe(Subscription::Channel, [&news]).await.expect("subscribed");
    for n in 0..100 {
        publish(&client, &news, &n.to_string()).await;
    }
    // Confirmed after all messages have come.
    subscriber.subscribe(Subscription::Channel, [&target.key("last")]).await.expect("subscribed");
    assert_eq!(subscriber.missed(), 90);
    for n in 0..10 {
        assert_eq!(message(&mut subscriber).await.payload, n.to_string());
    }
    assert_eq!(subscriber.next().await.expect("an event"), Event::Missed(90));
    publish(&client, &news, "again").await;
    assert_eq!(message(&mut subscriber).await.payload, "again");
}

#[tokio::test]
async fn a_slow_subscriber_is_disconnected_if_so_asked() {
    let target = target().await;
    let client = target.client().await;
    let news = target.key("news");
    let mut subscriber = client.subscriber_with(1, SlowConsumer::Disconnect).await.expect("connected");
    subscriber.subscribe(Subscription::Channel, [&news]).await.expect("subscribed");
    while publish(&client, &news, "x").await > 0 {}
    assert_eq!(message(&mut subscriber).await.payload, "x");
    let error = subscriber.next().await.expect_err("at its end");
    assert!(
        matches!(&error, Error::Lost(lost) if matches!(lost.cause(), LostCause::SlowConsumer)),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.ends_with(": the subscriber was too slow: take events sooner, or allow more to wait"),
        "{text}"
    );
    let error = subscriber.subscribe(Subscription::Channel, ["more"]).await.expect_err("at its end");
    assert!(error.to_string().ends_with("; the command was not sent"), "{error}");
}

/// Valkey 8.1 does not survive that it closes a connection itself.
mod server_closes {
    use super::*;

    #[tokio::test]
    async fn subscriptions_come_back_with_the_connection() {
        let target = target().await;
        let config = Config::default().name(target.key("subscriber"));
        for url in [target.url.clone(), format!("{}?protocol=resp2", target.url)] {
            let client = Client::connect_with(url.as_str(), &config).await.expect("connected");
            let news = target.key("news");
            let mut subscriber = client.subscriber().await.expect("connected");
            subscriber
                .subscribe(Subscription::Channel, [&news, &target.key("more")])
                .await
                .expect("subscribed");
            kill_subscriber(&client, &target.key("subscriber")).await;
            assert_eq!(subscriber.next().await.expect("an event"), Event::Reconnected);
            // Confirmed only when the earlier ones are.
            subscriber
                .subscribe(Subscription::Channel, [&target.key("even more")])
                .await
                .expect("subscribed");
            assert_eq!(publish(&client, &news, "back").await, 1);
            assert_eq!(message(&mut subscriber).await.payload, "back");
        }
    }
}
