//! Servers that are connected and not ready: `/health` says so as long as they do.

use std::net::SocketAddr;

use valkey_rdma_gateway::{Limits, Share};
use valkey_rdma_mock::{MockCluster, MockServer, Reply};

use crate::support::{Running, cluster_config, config, get, until_health, until_unhealthy, with_health};

async fn in_front_of(mock: &MockServer) -> (Running, SocketAddr) {
    with_health(config(mock.tcp_url(), Share::Auto, Limits::default())).await
}

fn hello(role: &'static str) -> Reply {
    Reply::Map(vec![(Reply::bulk("role"), Reply::bulk(role))])
}

#[tokio::test]
async fn a_primary_that_was_demoted_is_not_healthy() {
    let mock = MockServer::start().await;
    let role_is = mock.on("HELLO").reply(hello("replica"));
    let (gateway, addr) = in_front_of(&mock).await;
    let mut client = gateway.client().await;
    assert_eq!(client.say("GET k").await, "(nil)");
    until_health(addr, "200").await;
    mock.on("SET").error("READONLY You can't write against a read only replica.").times(1);
    // The error is the second of a pipeline: each reply is looked at.
    client.command("GET k").await;
    assert!(client.say("SET k v").await.starts_with("(nil)"));
    assert!(crate::support::text(&client.reply().await).starts_with("-READONLY "));
    until_unhealthy(addr, "answers -READONLY: its role is replica").await;
    role_is.reply(hello("master"));
    until_health(addr, "200").await;
}

#[tokio::test]
async fn a_node_whose_cluster_is_down_is_not_healthy() {
    let mock = MockServer::start().await;
    mock.on("GET").error("CLUSTERDOWN The cluster is down").times(1);
    let state =
        mock.on("CLUSTER").reply(Reply::bulk("cluster_state:fail\r\ncluster_slots_assigned:16384\r\n"));
    let (gateway, addr) = in_front_of(&mock).await;
    assert_eq!(gateway.client().await.say("GET k").await, "-CLUSTERDOWN The cluster is down");
    until_unhealthy(addr, "answers -CLUSTERDOWN: CLUSTER INFO says cluster_state:fail").await;
    state.reply(Reply::bulk("cluster_state:ok\r\n"));
    until_health(addr, "200").await;
}

/// A user who may run scripts could make them say so.
#[tokio::test]
async fn an_error_alone_does_not_make_a_server_unhealthy() {
    let mock = MockServer::start().await;
    mock.on("GET").error("CLUSTERDOWN said a script");
    mock.on("CLUSTER").error("NOPERM no permission");
    let (gateway, addr) = in_front_of(&mock).await;
    assert_eq!(gateway.client().await.say("GET k").await, "-CLUSTERDOWN said a script");
    assert!(get(addr, "/health").await.ends_with("\r\n\r\nok\n"));
}

#[tokio::test]
async fn a_cluster_that_is_down_is_not_healthy() {
    let mocks = MockCluster::start(1).await.expect("free ports");
    mocks.answer(0, "get", Some(Reply::error("CLUSTERDOWN The cluster is down")));
    let down = "cluster_state:fail\r\n";
    let mut limits = Limits::default();
    limits.offline_ms = 100;
    let config = cluster_config(mocks.urls(), limits);
    let (gateway, addr) = with_health(config).await;
    let reply = gateway.client().await.say("GET k").await;
    assert!(reply.starts_with("-CLUSTERDOWN "), "{reply}");
    mocks.answer(0, "cluster|info", Some(Reply::bulk(down)));
    until_unhealthy(addr, "CLUSTER INFO says cluster_state:fail").await;
    mocks.answer(0, "get", None);
    mocks.answer(0, "cluster|info", None);
    until_health(addr, "200").await;
}
