//! The cluster that a test runs against.
//!
//! `VALKEY_RDMA_TEST_CLUSTER` names nodes of a real one, over RDMA or TCP; tests may leave keys of their own in it. Without
//! it, each test has three primaries with a replica each to itself, mocks on the emulated device.

use std::sync::atomic::{AtomicU64, Ordering};

use valkey_rdma_client::cluster::ClusterConfig;
use valkey_rdma_client::{ClusterClient, Error};
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
pub(crate) async fn client_of(mocks: &MockCluster, config: &ClusterConfig) -> ClusterClient {
    ClusterClient::connect_with(mocks.urls(), config).await.expect("connected")
}

impl Target {
    pub(crate) async fn client(&self) -> ClusterClient {
        self.client_with(&ClusterConfig::default()).await.expect("connected")
    }

    pub(crate) async fn client_with(&self, config: &ClusterConfig) -> Result<ClusterClient, Error> {
        ClusterClient::connect_with(self.urls.iter().map(String::as_str), config).await
    }

    /// A key that no other test uses.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}
