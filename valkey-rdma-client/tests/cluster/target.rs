//! The cluster that a test runs against.
//!
//! `VALKEY_RDMA_TEST_CLUSTER` names nodes of a real one, over RDMA or TCP; tests may leave keys of their own in it. Without
//! it, each test has three primaries with a replica each to itself, mocks on the emulated device.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::timeout;
use valkey_rdma_client::{Client, Config, Error};
use valkey_rdma_mock::MockCluster;

/// A cluster. Dropping it stops mocks.
pub(crate) struct Target {
    urls: Vec<String>,
    _mocks: Option<MockCluster>,
    prefix: String,
}

pub(crate) async fn target() -> Target {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let test = std::thread::current();
    assert!(!test.name().unwrap_or_default().contains("mocks_only::"), "the mark of this test is wrong");
    let prefix = format!("test:{}:{count}:", std::process::id());
    match std::env::var("VALKEY_RDMA_TEST_CLUSTER") {
        Ok(urls) => Target { urls: urls.split(',').map(str::to_owned).collect(), _mocks: None, prefix },
        Err(_) => {
            let mocks = mocks().await;
            Target { urls: mocks.urls(), _mocks: Some(mocks), prefix }
        }
    }
}

/// Three primaries, nodes 0 to 2, and their replicas, nodes 3 to 5.
pub(crate) async fn mocks() -> MockCluster {
    MockCluster::builder(3).replicas(1).start().await.expect("free ports")
}

/// A client of mocks.
pub(crate) async fn client_of(mocks: &MockCluster, config: &Config) -> Client {
    Client::connect_with(seeds(mocks), config).await.expect("connected")
}

/// URLs of all nodes. Connecting takes as long as it takes: the default of 5 s could end it on a busy machine.
pub(crate) fn seeds(mocks: &MockCluster) -> Vec<String> {
    mocks.urls().into_iter().map(|url| format!("{url}?timeout={}s", PATIENCE.as_secs())).collect()
}

/// Commands take as long as they take.
pub(crate) fn unhurried() -> Config {
    Config::default().command_timeout(PATIENCE).offline_timeout(PATIENCE)
}

/// Reads the map often.
pub(crate) fn watchful() -> Config {
    unhurried().min_refresh_interval(Duration::from_millis(20))
}

/// Waits until the client has read the map `times` more.
pub(crate) async fn read_again(client: &Client, times: u64) {
    let refreshes = || client.cluster().expect("a cluster").status().counters.refreshes;
    let enough = refreshes() + times;
    let read = async {
        while refreshes() < enough {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, read).await.expect("it reads the map");
}

/// Waits until `commands` are in flight on a connection to the first node.
pub(crate) async fn in_flight(client: &Client, commands: u64) {
    let nodes = || client.cluster().expect("a cluster").status().nodes;
    while nodes()[0].connections.iter().all(|connection| connection.counters.in_flight < commands) {
        tokio::task::yield_now().await;
    }
}

/// Only a failing test waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Lets time pass in steps. The clock stands still only meanwhile: one that jumped whenever all tasks wait would also pass
/// the limits of what waits for a socket.
pub(crate) async fn advance(step: Duration, steps: u32) {
    tokio::time::pause();
    for _ in 0..steps {
        tokio::time::advance(step).await;
    }
    tokio::time::resume();
}

impl Target {
    pub(crate) async fn client(&self) -> Client {
        self.client_with(&unhurried()).await.expect("connected")
    }

    pub(crate) async fn client_with(&self, config: &Config) -> Result<Client, Error> {
        Client::connect_with(&self.urls, config).await
    }

    /// A key that no other test uses.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}
