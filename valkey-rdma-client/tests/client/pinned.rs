//! How much memory each kind of connection pins, and that large values pass through short buffers.

use std::collections::HashMap;

use futures_util::TryStreamExt;
use futures_util::future::join_all;
use valkey_rdma_client::pubsub::{Event, Subscription};
use valkey_rdma_client::transport::Config as TransportConfig;
use valkey_rdma_client::{Client, Command, Config, Purpose};

use crate::target::{Target, target};

/// A connection for blocking commands, WATCH or a subscriber: two windows and a send buffer of 64 KiB, and 33 KiB.
const SIDE: u64 = 3 * 65_536 + 33_280;
const MEMLOCK: u64 = 8 << 20;
const MIB: usize = 1 << 20;

/// The bytes that each connection pins, by its purpose. Over TCP there are none.
fn pinned(client: &Client) -> Vec<(Purpose, u64)> {
    let connections = client.connections();
    connections.iter().filter_map(|one| Some((one.purpose, one.stats?.pinned_bytes))).collect()
}

/// What a connection of this purpose pins; `None` over TCP.
fn pinned_by(client: &Client, purpose: Purpose) -> Option<u64> {
    pinned(client).into_iter().find_map(|(of, bytes)| (of == purpose).then_some(bytes))
}

/// A mock and its client, whose connections are those of the emulated device.
async fn on_device() -> (Target, Client) {
    let target = target().await;
    let client = target.client().await;
    (target, client)
}

/// Every purpose that a connection of the client has, with what it pins, in a target over RDMA.
fn assert_pinned(client: &Client, expected: &[(Purpose, u64)]) {
    let seen = pinned(client);
    if client.info().rx_window.is_some() {
        assert_eq!(seen, expected);
    } else {
        assert!(seen.is_empty(), "{seen:?}");
    }
}

#[tokio::test]
async fn connections_beside_the_shared_one_pin_little() {
    let (target, client) = on_device().await;
    let shared = TransportConfig::default().pinned_bytes_at_first();
    assert!(shared <= 2_200_000 && SIDE <= 260_000);
    assert_pinned(&client, &[(Purpose::Shared, shared)]);

    // A scan has no connection of its own, nor has a transaction without WATCH.
    let mut keys = client.scan().keys();
    while keys.try_next().await.expect("a key").is_some() {}
    client.transaction().command(["SET", &target.key("k"), "1"]).execute().await.expect("executed");
    assert_pinned(&client, &[(Purpose::Shared, shared)]);

    client.blocking_command(["BLPOP", &target.key("none"), "0.01"]).await.expect("a reply");
    assert_pinned(&client, &[(Purpose::Shared, shared), (Purpose::Idle, SIDE)]);
    let watch = client.watch([target.key("k")]).await.expect("watching");
    assert_pinned(&client, &[(Purpose::Shared, shared), (Purpose::Call, SIDE)]);
    let subscriber = client.subscriber().await.expect("connected");
    assert_pinned(&client, &[(Purpose::Shared, shared), (Purpose::Call, SIDE), (Purpose::Subscriber, SIDE)]);
    drop((watch, subscriber));
}

#[tokio::test]
async fn twenty_connections_fit_within_8_mib() {
    let (target, client) = on_device().await;
    let watches = join_all((0..10).map(|n| client.watch([target.key(&n.to_string())]))).await;
    let subscribers = join_all((0..9).map(|_| client.subscriber())).await;
    assert!(watches.iter().all(Result::is_ok) && subscribers.iter().all(Result::is_ok));
    assert_eq!(client.connections().len(), 20);
    let sum: u64 = pinned(&client).iter().map(|(_, bytes)| bytes).sum();
    assert!(sum <= MEMLOCK, "{sum}");
    if client.info().rx_window.is_some() {
        assert_eq!(sum, 2_195_968 + 19 * SIDE);
    }
}

#[tokio::test]
async fn a_value_of_1_mib_passes_each_kind_of_connection_in_pieces() {
    let (target, client) = on_device().await;
    let value: Vec<u8> = (0..MIB as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (list, key) = (target.key("list"), target.key("key"));
    let is_value = |bytes: Option<&[u8]>| bytes == Some(&value[..]);

    client.command(Command::new("RPUSH").arg(&list).arg(value.clone())).await.expect("pushed");
    let popped = client.blocking_command(["BLMOVE", &list, &key, "LEFT", "LEFT", "1"]).await.expect("moved");
    assert!(is_value(popped.as_bytes()));
    client.command(["DEL", &key]).await.expect("deleted");

    let mut watch = client.watch([&key]).await.expect("watching");
    assert!(watch.command(["GET", &key]).await.expect("a reply").is_nil());
    let set = Command::new("SET").arg(&key).arg(value.clone());
    let transaction = watch.transaction().command(set).command(["GET", &key]);
    let replies = transaction.execute().await.expect("executed");
    assert!(is_value(replies[1].as_ref().expect("a value").as_bytes()));

    let mut subscriber = client.subscriber().await.expect("connected");
    subscriber.subscribe(Subscription::Channel, [&key]).await.expect("subscribed");
    client.command(Command::new("PUBLISH").arg(&key).arg(value.clone())).await.expect("published");
    let event = subscriber.next().await.expect("an event");
    assert!(matches!(&event, Event::Message(message) if is_value(Some(&message.payload))));

    let pinned: HashMap<_, _> = pinned(&client).into_iter().collect();
    if client.info().rx_window.is_some() {
        assert_eq!((pinned[&Purpose::Idle], pinned[&Purpose::Subscriber]), (SIDE, SIDE), "it stays so");
        assert_eq!(pinned[&Purpose::Shared], TransportConfig::default().pinned_bytes(), "it sent 1 MiB");
    }
}

/// A streamed value has as long windows as the endpoint asks for, and is never read through those of a blocking command.
#[tokio::test]
async fn streamed_values_have_the_buffers_of_the_endpoint() {
    let (target, client) = on_device().await;
    client.blocking_command(["BLPOP", &target.key("none"), "0.01"]).await.expect("a reply");
    let own = client.dedicated().await.expect("connected");
    let at_first = TransportConfig::default().pinned_bytes_at_first();
    let expected = client.info().rx_window.map(|_| at_first);
    assert_eq!(pinned_by(&client, Purpose::Dedicated), expected);
    assert_eq!(own.info().rx_window, client.info().rx_window);
}

#[tokio::test]
async fn side_buffers_are_those_of_the_url_or_the_configuration_unless_the_endpoint_has_shorter_ones() {
    let (target, client) = on_device().await;
    let Some(window) = client.info().rx_window else { return };
    let connect = async |bytes, url: &str| {
        let config = Config::default().side_buffers(bytes);
        let client = Client::connect_with(url, &config).await.expect("connected");
        client.blocking_command(["BLPOP", &target.key("none"), "0.01"]).await.expect("a reply");
        let idle = client.connections().into_iter().find(|one| one.purpose == Purpose::Idle);
        idle.and_then(|one| one.info.rx_window)
    };
    assert_eq!(connect(262_144, &target.url).await, Some(262_144));
    assert_eq!(connect(16 << 20, &target.url).await, Some(window));
    assert_eq!(connect(1, &target.url).await, Some(65_536), "the least that a Valkey takes");
    let with = |options: &str| {
        let join = if target.url.contains('?') { '&' } else { '?' };
        format!("{}{join}{options}", target.url)
    };
    for configured in [1, 16 << 20] {
        assert_eq!(connect(configured, &with("side_buffers=131072")).await, Some(131_072));
    }
    assert_eq!(connect(1, &with("rx_size=65536&side_buffers=131072")).await, Some(65_536));
}

/// A batch of small commands is encoded into the send buffer, if it fits there at once.
#[tokio::test]
async fn a_batch_that_a_short_send_buffer_takes_in_parts_only_is_sent() {
    let target = target().await;
    let transport = TransportConfig::default().send_buffer(4096);
    let client = target.client_with(&Config::default().transport(transport)).await;
    let key = target.key("k");
    client.command(["SET", &key, &"x".repeat(3000)]).await.expect("a command of more than half");
    let mut pipeline = client.pipeline();
    for number in 0..200 {
        pipeline.push(["SET", &key, &format!("{number:040}")]);
    }
    let replies = pipeline.send().await.expect("a batch of 15 KB");
    assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    assert_eq!(client.counters().reconnects, 0);
}
