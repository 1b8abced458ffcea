//! What requests cost the device, counted: on one thread, so that who runs when is the same in every run.

use tokio::task::{JoinSet, yield_now};
use valkey_rdma_client::transport::Stats;
use valkey_rdma_client::{Client, Value};
use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};

async fn connected() -> (Client, Server) {
    let any = "127.0.0.1:0".parse().expect("an address");
    let builder = Server::builder(Mock::new()).rdma(DeviceKind::Emulated, any, &TransportConfig::default());
    let server = builder.start().await.expect("a free port");
    let client = Client::connect(server.urls().next().expect("one").as_str()).await.expect("connected");
    client.command(["SET", "key", "abc"]).await.expect("set");
    settle().await;
    (client, server)
}

/// Lets the connection task run until it sleeps.
async fn settle() {
    for _ in 0..100 {
        yield_now().await;
    }
}

/// What so many tasks cost that send so many GETs each, one after the other.
async fn cost(client: &Client, tasks: usize, each: usize) -> Cost {
    let before = client.connections()[0].stats.expect("not TCP");
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let client = client.clone();
        running.spawn(async move {
            for _ in 0..each {
                let reply = client.command(["GET", "key"]).await.expect("a reply");
                assert_eq!(reply, Value::Bulk("abc".into()));
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("no panic");
    }
    settle().await;
    Cost::between(&before, &client.connections()[0].stats.expect("not TCP"))
}

#[derive(Debug, PartialEq, Eq)]
struct Cost {
    work_requests: u64,
    doorbells: u64,
    events: u64,
    arms: u64,
}

impl Cost {
    fn between(before: &Stats, after: &Stats) -> Self {
        Self {
            work_requests: after.protocol.work_requests - before.protocol.work_requests,
            doorbells: after.device.doorbells - before.device.doorbells,
            events: after.device.events - before.device.events,
            arms: after.device.arms - before.device.arms,
        }
    }
}

#[tokio::test]
async fn sixteen_tasks_that_are_answered_together_send_their_next_commands_together() {
    let (client, _server) = connected().await;
    let cost = cost(&client, 16, 10).await;
    // The very first command leaves alone, so that there are two groups.
    assert!(cost.work_requests <= 2 * 10 && cost.doorbells == cost.work_requests, "{cost:?}");
}

/// A caller that finds nothing in flight does not wait for others, which may never come.
#[tokio::test]
async fn the_first_of_sixteen_leaves_at_once_and_the_others_together() {
    let (client, _server) = connected().await;
    let cost = cost(&client, 16, 1).await;
    assert_eq!((cost.work_requests, cost.doorbells), (2, 2), "{cost:?}");
}

#[tokio::test]
async fn a_single_caller_costs_a_work_request_an_event_and_an_arm_for_each_command() {
    let (client, _server) = connected().await;
    let cost = cost(&client, 1, 100).await;
    assert_eq!(cost, Cost { work_requests: 100, doorbells: 100, events: 100, arms: 100 });
}

#[tokio::test]
async fn fifty_tasks_cost_hardly_a_work_request_in_sixteen_requests() {
    let (client, _server) = connected().await;
    let cost = cost(&client, 50, 100).await;
    let most = 5_000 * 6 / 100;
    assert!(cost.work_requests <= most && cost.doorbells <= cost.work_requests, "{cost:?}");
    assert!(cost.events + cost.arms <= 2 * cost.work_requests, "{cost:?}");
}

/// tokio polls the main future when no task is ready. The connection task gives way to it, instead of asking the device meanwhile.
#[tokio::test]
async fn a_main_future_costs_no_more_polls_of_the_device_than_a_task() {
    let (client, _server) = connected().await;
    let polls = || client.connections()[0].stats.expect("not TCP").device.polls;
    let start = polls();
    cost(&client, 1, 100).await;
    let of_task = polls() - start;
    for _ in 0..100 {
        client.command(["GET", "key"]).await.expect("a reply");
    }
    settle().await;
    let of_main = polls() - start - of_task;
    assert!(of_main <= of_task + 10, "{of_main} polls, and {of_task} of a task");
}
