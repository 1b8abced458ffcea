//! Clients that outlive the runtime that made them, as one in a `static` that several tests share.

use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::{Builder, Runtime};
use valkey_rdma_client::{Client, ClusterClient, Config};
use valkey_rdma_mock::{MockCluster, MockServer};

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Its connection task has never run: nothing was awaited after the connect.
#[test]
fn a_client_whose_runtime_has_ended_says_so() {
    let mock = Runtime::new().expect("a runtime");
    let server = mock.block_on(MockServer::start());
    for url in [server.url(), server.tcp_url()] {
        let first = one_thread();
        let client = first.block_on(Client::connect(url)).expect("connected");
        drop(first);
        let error = one_thread().block_on(client.command(["PING"])).expect_err("its task was stopped");
        assert!(error.to_string().contains("has the runtime shut down?"), "{error}");
    }
    mock.block_on(server.shutdown());
}

/// A runtime of one thread runs only within `block_on`.
#[test]
fn closing_ends_though_the_runtime_that_connected_does_not_run() {
    let mock = Runtime::new().expect("a runtime");
    let server = mock.block_on(MockServer::start());
    let first = one_thread();
    let config = Config::default().close_timeout(Duration::from_millis(1));
    let client = first.block_on(Client::connect_with(server.tcp_url(), &config)).expect("connected");
    mock.block_on(client.close());
    assert!(client.command(["PING"]).now_or_never().is_some_and(|reply| reply.is_err()), "it is closed");
    mock.block_on(server.shutdown());
}

/// A cluster client connects to a node when a command needs it, wherever that command is.
#[test]
fn a_cluster_client_whose_runtime_has_ended_connects_on_another() {
    let mock = Runtime::new().expect("a runtime");
    let mocks = mock.block_on(MockCluster::start(2)).expect("free ports");
    let key = mocks.key_of(1, 0);
    let first = one_thread();
    let cluster = first.block_on(ClusterClient::connect([mocks.url(0)])).expect("connected");
    // The attempt to connect to node 1 begins, and ends with its runtime.
    first.block_on(async {
        let mut get = std::pin::pin!(cluster.command(["GET", &key]));
        assert!(get.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    });
    drop(first);
    one_thread().block_on(cluster.command(["GET", &key])).expect("connected anew");
    mock.block_on(mocks.shutdown());
}

/// Nothing can connect there. The node is not left in the middle of an attempt, nor locked.
#[test]
fn a_node_stays_usable_after_a_command_outside_of_a_runtime() {
    let runtime = Runtime::new().expect("a runtime");
    let mocks = runtime.block_on(MockCluster::start(2)).expect("free ports");
    let key = mocks.key_of(1, 0);
    let cluster = runtime.block_on(ClusterClient::connect([mocks.url(0)])).expect("connected");
    // Which of tokio's services it misses first is left to chance.
    for _ in 0..20 {
        let outside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut get = std::pin::pin!(cluster.command(["GET", &key]));
            let _ready = get.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }));
        outside.expect_err("there is no runtime");
    }
    runtime.block_on(cluster.command(["GET", &key])).expect("connected");
    runtime.block_on(mocks.shutdown());
}
