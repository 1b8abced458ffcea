//! From announced TCP ports to RDMA, and what happens where RDMA is missing.

use std::time::Duration;

use valkey_rdma_client::cluster::{MappedAddress, NodeAddress};
use valkey_rdma_client::{Client, ClusterError, Error, Transport};
use valkey_rdma_mock::{DeviceKind, Endpoint, MockCluster, Transports};

use crate::target::{client_of, mocks, unhurried};

async fn both() -> MockCluster {
    let both = Transports::Both(DeviceKind::Emulated);
    MockCluster::builder(3).transports(both).start().await.expect("free ports")
}

/// Writes a key on each node, and returns their transports.
async fn transports(mocks: &MockCluster, cluster: &Client) -> Vec<Option<Transport>> {
    for node in 0..3 {
        cluster.command(["SET", &mocks.key_of(node, 0), "x"]).await.expect("set");
    }
    let nodes = cluster.cluster().expect("a cluster").status().nodes;
    nodes.into_iter().map(|node| node.transport).collect()
}

#[tokio::test]
async fn the_rdma_port_follows_from_the_announced_port() {
    let mocks = both().await;
    for rule in ["+1", "discover"] {
        let seeds = mocks.urls().into_iter().map(|url| format!("{url}?rdma_port={rule}"));
        let cluster = Client::connect(seeds.collect::<Vec<_>>()).await.expect("connected");
        assert_eq!(transports(&mocks, &cluster).await, [Some(Transport::Emulated); 3], "{rule}");
    }
}

#[tokio::test]
async fn a_program_can_map_addresses() {
    let mocks = both().await;
    let config = unhurried().address_map(|announced| {
        let port = announced.port.checked_add(1)?;
        Some(MappedAddress::At(NodeAddress::new(announced.host.clone(), port)))
    });
    let cluster = client_of(&mocks, &config).await;
    assert_eq!(transports(&mocks, &cluster).await, [Some(Transport::Emulated); 3]);
}

#[tokio::test]
async fn a_node_without_rdma_is_reached_over_tcp_if_that_is_allowed() {
    let mocks = both().await;
    mocks.close_rdma(1).await;
    let seeds = mocks.urls().into_iter().map(|url| format!("{url}?rdma_port=+1&fallback=tcp&timeout=2s"));
    let cluster = Client::connect(seeds.collect::<Vec<_>>()).await.expect("connected");
    let transports = transports(&mocks, &cluster).await;
    assert_eq!(transports.iter().filter(|transport| **transport == Some(Transport::Tcp)).count(), 1);
    let status = cluster.cluster().expect("a cluster").status().to_string();
    assert!(status.contains("instead of rdma"), "{status}");
}

/// Of a cluster with fewer nodes than are asked at once.
#[tokio::test]
async fn seeds_under_other_addresses_are_not_connected_while_the_nodes_answer() {
    let both = Transports::Both(DeviceKind::Emulated);
    let mocks = MockCluster::builder(1).transports(both).start().await.expect("free ports");
    let often = Duration::from_millis(10);
    let config = unhurried().refresh_interval(often).min_refresh_interval(often);
    let seeds: Vec<_> = mocks.urls().iter().map(|url| format!("{url}?rdma_port=+1")).collect();
    let client = Client::connect_with(seeds, &config).await.expect("connected");
    client.command(["SET", &mocks.key_of(0, 0), "x"]).await.expect("set");
    let cluster = client.cluster().expect("a cluster");
    let enough = cluster.status().counters.refreshes + 3;
    while cluster.status().counters.refreshes < enough {
        assert_eq!(client.connections().len(), 1);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_unknown_endpoint_is_that_of_the_node_that_answers() {
    let mocks = mocks().await;
    for node in 0..mocks.len() {
        mocks.announce_endpoint(node, Endpoint::Unknown);
    }
    let cluster = client_of(&mocks, &unhurried()).await;
    transports(&mocks, &cluster).await;
}

#[tokio::test]
async fn port_0_is_that_of_the_node_that_answers_and_the_status_says_so() {
    let mocks = MockCluster::start(1).await.expect("a free port");
    mocks.announce_port(0, 0);
    let cluster = client_of(&mocks, &unhurried()).await;
    cluster.command(["SET", "a", "x"]).await.expect("set");
    assert!(cluster.cluster().expect("a cluster").status().nodes[0].port_assumed);
}

/// `noaddr` of CLUSTER NODES: the other nodes have found another cluster's node at its address.
#[tokio::test]
async fn the_slots_of_a_node_without_host_and_port_have_no_node() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let key = mocks.key_of(0, 0);
    mocks.kill(0).await;
    mocks.announce_endpoint(0, Endpoint::Text(String::new()));
    mocks.announce_port(0, 0);
    let cluster = client_of(&mocks, &unhurried().offline_timeout(Duration::from_millis(300))).await;
    let status = cluster.cluster().expect("a cluster").status();
    assert!(!status.is_complete && status.nodes.len() == 2, "{status}");
    let error = cluster.command(["GET", &key]).await.expect_err("no node");
    assert!(matches!(error, Error::Cluster(ClusterError::Uncovered { slot: Some(_) })), "{error:?}");
    for node in 1..3 {
        cluster.command(["SET", &mocks.key_of(node, 0), "x"]).await.expect("its address is known");
    }
}
