//! Subscriptions that follow their slots.

use std::time::Duration;

use tokio::time::timeout;
use valkey_rdma_client::pubsub::{Event, SlowConsumer, Subscription};
use valkey_rdma_client::{Client, ClusterError, Error, Subscriber};
use valkey_rdma_mock::MockCluster;
use valkey_rdma_resp::Reply;

use crate::target::{PATIENCE, client_of, mocks, target, unhurried};

async fn payload(subscriber: &mut Subscriber) -> String {
    loop {
        match subscriber.next().await.expect("open") {
            Event::Message(message) => return String::from_utf8_lossy(&message.payload).into_owned(),
            Event::Reconnected => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Waits until the subscriptions are restored.
async fn reconnected(subscriber: &mut Subscriber) {
    loop {
        if let Event::Reconnected = subscriber.next().await.expect("open") {
            return;
        }
    }
}

async fn publish(cluster: &Client, name: &str, channel: &str, payload: &str) {
    cluster.command([name, channel, payload]).await.expect("published");
}

#[tokio::test]
async fn messages_come_whatever_node_they_were_published_on() {
    let target = target().await;
    let cluster = target.client().await;
    let mut subscriber = cluster.subscriber().await.expect("open");
    let channels: Vec<_> = (0..6).map(|number| target.key(&format!("shard:{number}"))).collect();
    subscriber.subscribe(Subscription::Shard, &channels).await.expect("subscribed");
    let plain = target.key("plain");
    subscriber.subscribe(Subscription::Channel, [&plain]).await.expect("subscribed");
    for channel in &channels {
        publish(&cluster, "SPUBLISH", channel, channel).await;
        assert_eq!(payload(&mut subscriber).await, *channel);
    }
    publish(&cluster, "PUBLISH", &plain, "news").await;
    assert_eq!(payload(&mut subscriber).await, "news");
    subscriber.unsubscribe(Subscription::Shard, &channels[..1]).await.expect("unsubscribed");
    publish(&cluster, "SPUBLISH", &channels[0], "unheard").await;
    publish(&cluster, "SPUBLISH", &channels[1], "heard").await;
    assert_eq!(payload(&mut subscriber).await, "heard");
}

/// They bring mocks of their own: a real server beside them shows nothing.
mod mocks_only {
    use super::*;

    /// A subscriber of two shard channels of one slot, on node 0.
    async fn subscribed() -> (MockCluster, Client, [String; 2], Subscriber) {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        let channel = mocks.key_of(0, 0);
        let other = format!("{{{channel}}}other");
        let subscriber = cluster.subscriber().await.expect("open");
        subscriber.subscribe(Subscription::Shard, [&channel, &other]).await.expect("subscribed");
        (mocks, cluster, [channel, other], subscriber)
    }

    #[tokio::test]
    async fn a_shard_channel_moves_with_its_slot() {
        let (mocks, cluster, [channel, _], mut subscriber) = subscribed().await;
        let slot = MockCluster::slot(&channel);
        mocks.move_slots(slot..=slot, 1);
        reconnected(&mut subscriber).await;
        publish(&cluster, "SPUBLISH", &channel, "moved").await;
        assert_eq!(payload(&mut subscriber).await, "moved");
    }

    #[tokio::test]
    async fn subscriptions_survive_their_node() {
        let (mocks, cluster, [channel, _], mut subscriber) = subscribed().await;
        mocks.kill(0).await;
        mocks.fail_over(3);
        reconnected(&mut subscriber).await;
        publish(&cluster, "SPUBLISH", &channel, "survived").await;
        assert_eq!(payload(&mut subscriber).await, "survived");
        cluster.close().await;
        let error = loop {
            if let Err(error) = subscriber.next().await {
                break error;
            }
        };
        assert_eq!(error.to_string(), "connection to the cluster lost: it was closed by this program");
    }

    #[tokio::test]
    async fn a_subscription_that_timed_out_is_restored_too() {
        let mocks = mocks().await;
        let hurried = unhurried().command_timeout(Duration::from_millis(300));
        let cluster = client_of(&mocks, &hurried).await;
        let channel = mocks.key_of(0, 0);
        let other = format!("{{{channel}}}other");
        let mut subscriber = cluster.subscriber().await.expect("open");
        while subscriber.subscribe(Subscription::Shard, [&channel]).await.is_err() {}
        mocks.freeze(0);
        // The second is sent when the first is given up.
        for name in [&other, &channel] {
            let error = subscriber.subscribe(Subscription::Shard, [name]).await.expect_err("no answer");
            assert!(matches!(error, Error::TimedOut(_)), "{error:?}");
        }
        mocks.thaw(0);
        mocks.disconnect(0).await;
        reconnected(&mut subscriber).await;
        let publisher = client_of(&mocks, &unhurried()).await;
        publish(&publisher, "SPUBLISH", &other, "news").await;
        assert_eq!(payload(&mut subscriber).await, "news");
    }

    #[tokio::test]
    async fn a_subscription_that_is_refused_again_is_reported_and_the_others_are_restored() {
        let (mocks, cluster, [channel, other], mut subscriber) = subscribed().await;
        // Both together, then one of them alone.
        let refusal = || Reply::error("NOPERM no permission");
        mocks.answer_next(0, "ssubscribe", [refusal(), refusal()]);
        mocks.disconnect(0).await;
        let refused = subscriber.next().await.expect("open");
        let Event::Refused { to: Subscription::Shard, name: refused, error } = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(error.code, "NOPERM");
        assert_eq!(subscriber.next().await.expect("open"), Event::Reconnected);
        let restored = if refused == channel { &other } else { &channel };
        publish(&cluster, "SPUBLISH", restored, "heard").await;
        assert_eq!(payload(&mut subscriber).await, "heard");
        // On the next connection it is requested again.
        mocks.disconnect(0).await;
        reconnected(&mut subscriber).await;
        let refused = String::from_utf8_lossy(&refused).into_owned();
        publish(&cluster, "SPUBLISH", &refused, "heard again").await;
        assert_eq!(payload(&mut subscriber).await, "heard again");
    }

    #[tokio::test]
    async fn subscriptions_of_a_slot_come_back_when_its_node_is_no_longer_busy() {
        let (mocks, cluster, [channel, other], mut subscriber) = subscribed().await;
        let refusal = || Reply::error("BUSY a script runs");
        mocks.answer_next(0, "ssubscribe", [refusal(), refusal(), refusal()]);
        mocks.disconnect(0).await;
        assert_eq!(subscriber.next().await.expect("open"), Event::Reconnected, "and nothing was refused");
        for name in [&channel, &other] {
            publish(&cluster, "SPUBLISH", name, "heard").await;
            assert_eq!(payload(&mut subscriber).await, "heard");
        }
    }

    #[tokio::test]
    async fn the_connection_of_a_slot_without_subscriptions_is_closed() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        let channels: Vec<_> = (0..4).map(|number| mocks.key_of(0, number)).collect();
        let mut subscriber = cluster.subscriber().await.expect("open");
        let before = mocks.connections(0).await;
        for round in ["first", "second"] {
            subscriber.subscribe(Subscription::Shard, &channels).await.expect("subscribed");
            assert_eq!(mocks.connections(0).await, before + channels.len());
            for channel in &channels {
                publish(&cluster, "SPUBLISH", channel, round).await;
            }
            subscriber.unsubscribe(Subscription::Shard, &channels).await.expect("unsubscribed");
            let closed = async {
                while mocks.connections(0).await > before {
                    tokio::task::yield_now().await;
                }
            };
            timeout(PATIENCE, closed).await.expect("closed");
            // Messages that came before are kept.
            for _ in &channels {
                assert_eq!(payload(&mut subscriber).await, round);
            }
        }
    }

    #[tokio::test]
    async fn nodes_that_send_a_subscription_back_and_forth_end_in_an_error() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        mocks.move_all_to(0, Some(1));
        mocks.move_all_to(1, Some(0));
        let channel = mocks.key_of(0, 0);
        let mut subscriber = cluster.subscriber().await.expect("open");
        let error = subscriber.subscribe(Subscription::Shard, [&channel]).await.expect_err("endless");
        assert!(matches!(error, Error::Cluster(ClusterError::Redirected { count: 16, .. })), "{error:?}");
        assert_eq!(mocks.calls_everywhere("ssubscribe"), 17);
        mocks.move_all_to(0, None);
        mocks.move_all_to(1, None);
        subscriber.subscribe(Subscription::Shard, [&channel]).await.expect("subscribed");
        publish(&cluster, "SPUBLISH", &channel, "news").await;
        assert_eq!(payload(&mut subscriber).await, "news");
    }

    #[tokio::test]
    async fn subscriptions_change_although_the_queue_is_full() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        let channel = mocks.key_of(0, 0);
        let other = format!("{{{channel}}}other");
        let mut subscriber = cluster.subscriber_with(1, SlowConsumer::Drop).await.expect("open");
        subscriber.subscribe(Subscription::Shard, [&channel]).await.expect("subscribed");
        for number in 0..5 {
            publish(&cluster, "SPUBLISH", &channel, &number.to_string()).await;
        }
        let more = subscriber.subscribe(Subscription::Shard, [&other]);
        timeout(PATIENCE, more).await.expect("no wait for room").expect("subscribed");
        assert_eq!(payload(&mut subscriber).await, "0");
        // The rest was kept, or reported as dropped.
        while !matches!(subscriber.next().await.expect("open"), Event::Missed(_)) {}
        publish(&cluster, "SPUBLISH", &other, "heard").await;
        assert_eq!(payload(&mut subscriber).await, "heard");
    }
}
