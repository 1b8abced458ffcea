//! Many clients of one cluster: what a failover makes them ask for.

use futures_util::future::try_join_all;
use valkey_rdma_client::Client;
use valkey_rdma_mock::{MockCluster, Transports};

use crate::target::{PATIENCE, client_of, mocks, unhurried};

/// Lets every client send a command as often at once.
async fn all(clients: &[Client], times: usize, command: [&str; 2]) {
    let commands = clients.iter().flat_map(|client| (0..times).map(move |_| client.command(command)));
    try_join_all(commands).await.expect("answered");
}

/// How often any node was asked for its map.
fn maps(mocks: &MockCluster) -> u64 {
    mocks.calls_everywhere("cluster|slots") + mocks.calls_everywhere("cluster|shards")
}

#[tokio::test]
async fn a_failover_costs_each_client_one_redirection_per_command_in_flight_and_no_storm_of_maps() {
    const CLIENTS: usize = 25;
    const COMMANDS: usize = 20;
    let mocks = mocks().await;
    let config = unhurried().min_refresh_interval(PATIENCE).refresh_interval(None);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(client_of(&mocks, &config).await);
    }
    let key = mocks.key_of(0, 0);
    all(&clients, COMMANDS, ["GET", &key]).await;
    let (asked, called) = (maps(&mocks), mocks.calls_everywhere("get"));
    mocks.fail_over(3);
    all(&clients, COMMANDS, ["GET", &key]).await;
    let redirected = mocks.calls_everywhere("get") - called - (CLIENTS * COMMANDS) as u64;
    assert!((CLIENTS as u64..=(CLIENTS * COMMANDS) as u64).contains(&redirected), "{redirected}");

    // From now on each client goes there at once, with other keys of the shard too, although none has read a map.
    let called = mocks.calls_everywhere("get");
    all(&clients, COMMANDS, ["GET", &mocks.key_of(3, 1)]).await;
    assert_eq!(mocks.calls_everywhere("get") - called, (CLIENTS * COMMANDS) as u64);
    assert_eq!(maps(&mocks), asked);
    for client in &clients {
        let counters = client.cluster().expect("a cluster").status().counters;
        assert_eq!((counters.refreshes, counters.lost), (0, 0));
    }
}

#[tokio::test]
async fn a_failover_costs_each_client_a_reading_or_two_whatever_the_number_of_commands() {
    const CLIENTS: usize = 200;
    const COMMANDS: usize = 10;
    /// How many nodes a client asks at once, so that one stale answer does no harm.
    const ASKED: u64 = 3;
    let mocks = MockCluster::builder(10).replicas(1).transports(Transports::Tcp);
    let mocks = mocks.start().await.expect("free ports");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(client_of(&mocks, &unhurried().refresh_interval(None)).await);
    }
    let reading = ASKED * CLIENTS as u64;
    let key = mocks.key_of(0, 0);
    all(&clients, COMMANDS, ["INCR", &key]).await;
    // Nodes that answer late are not waited for.
    assert!(maps(&mocks) <= reading, "one to connect; commands that arrive need none");

    mocks.fail_over(10);
    all(&clients, COMMANDS, ["INCR", &key]).await;
    assert!(maps(&mocks) <= 3 * reading, "{} answers for {} commands", maps(&mocks), CLIENTS * COMMANDS);
    // Each INCR ran once.
    let count = clients[0].command(["GET", &key]).await.expect("a reply");
    assert_eq!(count.as_str(), Some((2 * CLIENTS * COMMANDS).to_string().as_str()));
}
