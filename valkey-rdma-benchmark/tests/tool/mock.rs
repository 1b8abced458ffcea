//! The tool against the mock server.

use std::net::SocketAddr;

use tokio::runtime::Runtime;
use valkey_rdma_mock::{Mock, MockCluster, Server, Transports};

use crate::scripted::{stderr, stdout, tool_at};

/// Runs the tool with `flags` against a mock on TCP.
fn run(flags: &str) -> std::process::Output {
    let runtime = Runtime::new().unwrap();
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let server = runtime.block_on(Server::builder(Mock::new()).tcp(loopback).start()).unwrap();
    tool_at(server.listening()[0].addr, flags)
}

#[test]
fn the_mock_gives_right_replies() {
    for flags in [
        "-t ping_mbulk,set,get -n 500 -c 3 -q",
        "-t ping_mbulk,set,get -n 500 -c 1 --tasks-per-connection 9 -P 3 -r 100 -d 2000 -q",
    ] {
        let output = run(flags);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""), "{flags}");
        let titles: Vec<_> = stdout(&output).lines().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(titles, ["PING_MBULK", "SET", "GET"]);
    }
}

/// With RESP3 the server sends invalidation messages among the replies.
#[test]
fn every_connection_asks_for_invalidation_messages() {
    for flags in [
        "--ratio 1:1 --populate all -r 10 -n 500 -c 3 -q --enable-tracking",
        "--ratio 1:1 --populate all -r 10 -n 500 -c 3 -q --enable-tracking -3",
        "--ratio 1:1 --populate all -r 10 -n 500 -c 3 -q --enable-tracking -3 --tasks-per-connection 4",
    ] {
        // A cluster of one counts its calls.
        let runtime = Runtime::new().unwrap();
        let cluster = runtime.block_on(MockCluster::builder(1).transports(Transports::Tcp).start()).unwrap();
        let addr = cluster.tcp_url(0).unwrap().strip_prefix("valkey://").unwrap().parse().unwrap();
        let output = tool_at(addr, flags);
        assert_eq!(output.status.code(), Some(0), "{flags}: {}", stderr(&output));
        assert_eq!(cluster.calls(0, "client|tracking"), 3, "{flags}");
    }
}

#[test]
fn a_cluster_is_measured_as_a_whole() {
    let runtime = Runtime::new().unwrap();
    let cluster = runtime.block_on(MockCluster::builder(3).transports(Transports::Tcp).start()).unwrap();
    let first = cluster.tcp_url(0).unwrap().strip_prefix("valkey://").unwrap().parse().unwrap();
    for flags in [
        "--cluster -t set,get,mset -n 600 -c 2 -r 1000 -q",
        "--cluster -t set,get,mset -n 600 -c 1 --tasks-per-connection 5 -P 4 -r 1000 -q",
    ] {
        let output = tool_at(first, flags);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""), "{flags}");
        let titles: Vec<_> = stdout(&output).lines().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(titles[..2], ["SET", "GET"]);
    }
    for node in 0..3 {
        assert!(cluster.calls(node, "get") > 100, "{node}");
    }
    let moved: u64 = (0..3).map(|node| cluster.calls(node, "cluster|slots")).sum();
    assert!(moved < 20, "each client reads the map once, and not for every command: {moved}");
}

#[test]
fn the_table_names_the_server_that_was_measured() {
    let output = run("-n 100 -c 2 -t ping_mbulk");
    let table = stdout(&output);
    assert!(table.starts_with("server      valkey://127.0.0.1:"), "{table}");
    assert!(
        table.contains("transport   tcp, RESP2") && table.contains("connections 2, driven directly"),
        "{table}"
    );
    assert!(!table.contains('\x1b'), "colour is for terminals");
}
