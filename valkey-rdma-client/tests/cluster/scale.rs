//! Many clients of one cluster: what a failover makes each of them ask for.

use futures_util::future::try_join_all;
use valkey_rdma_client::Client;
use valkey_rdma_mock::MockCluster;

use crate::target::{PATIENCE, client_of, mocks, unhurried};

/// Each client has this many commands in flight.
const COMMANDS: usize = 20;
const CLIENTS: usize = 25;

/// Lets every client send a command many times at once.
async fn all(clients: &[Client], key: &str) {
    let commands = clients.iter().flat_map(|client| (0..COMMANDS).map(move |_| client.command(["GET", key])));
    try_join_all(commands).await.expect("answered");
}

/// How often any node was asked for its map.
fn maps(mocks: &MockCluster) -> u64 {
    mocks.calls_everywhere("cluster|slots") + mocks.calls_everywhere("cluster|shards")
}

#[tokio::test]
async fn a_failover_costs_each_client_one_redirection_per_command_in_flight_and_no_storm_of_maps() {
    let mocks = mocks().await;
    let config = unhurried().min_refresh_interval(PATIENCE).refresh_interval(None);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(client_of(&mocks, &config).await);
    }
    let key = mocks.key_of(0, 0);
    all(&clients, &key).await;
    let (asked, called) = (maps(&mocks), mocks.calls_everywhere("get"));
    mocks.fail_over(3);
    all(&clients, &key).await;
    let redirected = mocks.calls_everywhere("get") - called - (CLIENTS * COMMANDS) as u64;
    assert!((CLIENTS as u64..=(CLIENTS * COMMANDS) as u64).contains(&redirected), "{redirected}");

    // From now on each client goes there at once, with other keys of the shard too, although none has read a map.
    let called = mocks.calls_everywhere("get");
    all(&clients, &mocks.key_of(3, 1)).await;
    assert_eq!(mocks.calls_everywhere("get") - called, (CLIENTS * COMMANDS) as u64);
    assert_eq!(maps(&mocks), asked);
    for client in &clients {
        let counters = client.cluster().expect("a cluster").status().counters;
        assert_eq!((counters.refreshes, counters.lost), (0, 0));
    }
}
