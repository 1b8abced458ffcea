//! Subscriptions that follow their slots.

use valkey_rdma_client::ClusterClient;
use valkey_rdma_client::cluster::ClusterSubscriber;
use valkey_rdma_client::pubsub::{Event, Subscription};
use valkey_rdma_mock::MockCluster;

use crate::target::{client_of, mocks, target, unhurried};

async fn payload(subscriber: &mut ClusterSubscriber) -> String {
    loop {
        match subscriber.next().await.expect("open") {
            Event::Message(message) => return String::from_utf8_lossy(&message.payload).into_owned(),
            Event::Reconnected => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Waits until the subscriptions are restored.
async fn reconnected(subscriber: &mut ClusterSubscriber) {
    loop {
        if let Event::Reconnected = subscriber.next().await.expect("open") {
            return;
        }
    }
}

async fn publish(cluster: &ClusterClient, name: &str, channel: &str, payload: &str) {
    cluster.command([name, channel, payload]).await.expect("published");
}

#[tokio::test]
async fn messages_come_whatever_node_they_were_published_on() {
    let target = target().await;
    let cluster = target.client().await;
    let mut subscriber = cluster.subscriber();
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

#[tokio::test]
async fn a_shard_channel_moves_with_its_slot() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let channel = mocks.key_of(0, 0);
    let mut subscriber = cluster.subscriber();
    subscriber.subscribe(Subscription::Shard, [&channel]).await.expect("subscribed");
    let slot = MockCluster::slot(&channel);
    mocks.move_slots(slot..=slot, 1);
    reconnected(&mut subscriber).await;
    publish(&cluster, "SPUBLISH", &channel, "moved").await;
    assert_eq!(payload(&mut subscriber).await, "moved");
}

#[tokio::test]
async fn subscriptions_survive_their_node() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let channel = mocks.key_of(0, 0);
    let mut subscriber = cluster.subscriber();
    subscriber.subscribe(Subscription::Shard, [&channel]).await.expect("subscribed");
    mocks.kill(0).await;
    mocks.fail_over(3);
    reconnected(&mut subscriber).await;
    publish(&cluster, "SPUBLISH", &channel, "survived").await;
    assert_eq!(payload(&mut subscriber).await, "survived");
    cluster.close().await;
    while subscriber.next().await.is_some() {}
}
