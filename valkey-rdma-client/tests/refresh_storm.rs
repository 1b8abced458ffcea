//! Many clients of one cluster: after a failover they find their way with few questions.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use valkey_rdma_client::Client;
use valkey_rdma_mock::{MockCluster, Transports};

const CLIENTS: usize = 200;
const COMMANDS: usize = 10;
/// How many nodes a client asks at once, so that one stale answer does no harm.
const ASKED: u64 = 3;

/// How often any node was asked for the map.
fn maps(cluster: &MockCluster) -> u64 {
    cluster.calls_everywhere("cluster|slots")
}

/// Lets every client send the same command many times at once.
async fn all(clients: &[Client], key: &str) {
    let mut tasks = JoinSet::new();
    for client in clients {
        for _ in 0..COMMANDS {
            let (client, key) = (client.clone(), key.to_owned());
            tasks.spawn(async move { client.command(["INCR", &key]).await.map(drop) });
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic").expect("the command finds its node");
    }
}

#[tokio::test]
async fn a_failover_costs_each_client_a_reading_or_two_whatever_the_number_of_commands() {
    let cluster = MockCluster::builder(10).replicas(1).transports(Transports::Tcp);
    let cluster = cluster.start().await.expect("started");
    let seeds: Vec<String> = (0..3).filter_map(|node| cluster.tcp_url(node)).collect();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Client::connect(&seeds).await.expect("connected"));
    }
    assert_eq!(maps(&cluster), ASKED * CLIENTS as u64, "to connect");

    let key = cluster.key_of(0, 0);
    timeout(PATIENCE, all(&clients, &key)).await.expect("no hang");
    assert_eq!(maps(&cluster), ASKED * CLIENTS as u64, "commands that arrive need no reading");

    cluster.fail_over(10);
    timeout(PATIENCE, all(&clients, &key)).await.expect("no hang");
    let asked = maps(&cluster) - ASKED * CLIENTS as u64;
    assert!(asked <= 2 * ASKED * CLIENTS as u64, "{asked} readings for {} commands", CLIENTS * COMMANDS);
    // Each INCR ran once.
    let count = clients[0].command(["GET", &key]).await.expect("a reply");
    assert_eq!(count.as_str(), Some((2 * CLIENTS * COMMANDS).to_string().as_str()));
}

/// Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(300);
