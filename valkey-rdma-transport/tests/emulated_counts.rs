//! Exact counts of what one request and its reply cost, on one thread of the emulated device. On soft-RoCE an arm, an
//! event and a doorbell are one system call each; with the wait for readiness, a round trip costs four.

#![cfg(feature = "emulated")]

use stream_pair::polling_modes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use valkey_rdma_transport::{Config, DeviceCounters, DeviceKind, Listener, Monitor, Polling, Stream};

mod stream_pair;

const ROUND_TRIPS: u64 = 100;

async fn pair(client: &Config, server: &Config) -> (Stream, Stream) {
    let (kind, any) = (DeviceKind::Emulated, "127.0.0.1:0".parse().expect("an address"));
    let mut listener = Listener::bind(kind, any, server).await.expect("listens");
    let addr = listener.local_addr();
    let (client, server) = tokio::join!(Stream::connect(kind, addr, client), listener.accept());
    (client.expect("connects"), server.expect("accepts"))
}

/// Lets the drivers go to sleep.
async fn rest() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// What some round trips cost the client.
async fn cost(client: Stream, server: Stream) -> DeviceCounters {
    let monitor = client.monitor();
    cost_of(client, monitor, server).await
}

/// The same, whoever drives it.
async fn cost_of(
    mut client: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    monitor: Monitor,
    mut server: Stream,
) -> DeviceCounters {
    let echo = tokio::spawn(async move {
        while let Ok(byte) = server.read_u8().await {
            server.write_u8(byte).await.expect("writes");
        }
    });
    rest().await;
    let before = monitor.stats().device;
    // A task as others are: a runtime's main one has its turn when no other wants it.
    let asking = tokio::spawn(async move {
        for n in 0..ROUND_TRIPS {
            client.write_u8(n as u8).await.expect("writes");
            assert_eq!(client.read_u8().await.expect("reads"), n as u8);
        }
        client
    });
    let client = asking.await.expect("no panic");
    rest().await;
    let after = monitor.stats().device;
    drop(client);
    echo.abort();
    let mut cost = DeviceCounters::default();
    cost.doorbells = after.doorbells - before.doorbells;
    cost.receive_posts = after.receive_posts - before.receive_posts;
    cost.events = after.events - before.events;
    cost.arms = after.arms - before.arms;
    cost.polls = after.polls - before.polls;
    cost.spins = after.spins - before.spins;
    cost.sleeps = after.sleeps - before.sleeps;
    cost.copied_in = after.copied_in - before.copied_in;
    cost.copied_out = after.copied_out - before.copied_out;
    cost
}

#[tokio::test]
async fn a_round_trip_by_events_costs_one_doorbell_one_event_and_one_arm() {
    let (client, server) = pair(&Config::default(), &Config::default()).await;
    let cost = cost(client, server).await;
    let mut expected = DeviceCounters::default();
    expected.doorbells = ROUND_TRIPS;
    expected.receive_posts = ROUND_TRIPS;
    expected.events = ROUND_TRIPS;
    expected.arms = ROUND_TRIPS;
    expected.sleeps = ROUND_TRIPS;
    // The driver looks when it wakes, again when the reader has had its turn, and again when it has armed; the reader
    // before it waits. The last reply has no answer, for which the driver gives way twice more.
    expected.polls = 4 * ROUND_TRIPS + 2;
    expected.copied_in = ROUND_TRIPS;
    expected.copied_out = ROUND_TRIPS;
    assert_eq!(cost, expected);
}

#[tokio::test]
async fn a_round_trip_driven_by_its_task_costs_no_look_more_than_it_needs() {
    let (client, server) = pair(&Config::default(), &Config::default()).await;
    let monitor = client.monitor();
    let cost = cost_of(client.driven(), monitor, server).await;
    let mut expected = DeviceCounters::default();
    expected.doorbells = ROUND_TRIPS;
    expected.receive_posts = ROUND_TRIPS;
    expected.events = ROUND_TRIPS;
    // The background had asked for the first event, while it drove.
    expected.arms = ROUND_TRIPS - 1;
    expected.sleeps = ROUND_TRIPS;
    // When the event has come, when the answer has left, and when the queue is armed.
    expected.polls = 3 * ROUND_TRIPS - 1;
    expected.copied_in = ROUND_TRIPS;
    expected.copied_out = ROUND_TRIPS;
    assert_eq!(cost, expected);
}

#[tokio::test]
async fn a_round_trip_without_sleep_costs_one_doorbell() {
    let [.., (mode, busy)] = polling_modes();
    assert_eq!(mode, Polling::Busy);
    let (client, server) = pair(&busy, &Config::default()).await;
    let cost = cost(client, server).await;
    assert_eq!((cost.doorbells, cost.receive_posts), (ROUND_TRIPS, ROUND_TRIPS));
    assert_eq!((cost.events, cost.arms, cost.sleeps), (0, 0, 0));
}

#[tokio::test]
async fn an_idle_connection_costs_nothing() {
    let (client, server) = pair(&Config::default(), &Config::default()).await;
    rest().await;
    let before = (client.stats(), server.stats());
    rest().await;
    assert_eq!((client.stats(), server.stats()), before);
}
