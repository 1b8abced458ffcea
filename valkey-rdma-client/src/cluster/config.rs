//! [`ClusterConfig`]: how the client of a cluster behaves.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::address::{AddressMap, MappedAddress, NodeAddress};
use super::replicas::ReadFrom;
use crate::config::Config;

/// What a client of a cluster does beyond one of a single server.
#[derive(Clone)]
pub(crate) struct ClusterConfig {
    pub(crate) read_from: ReadFrom,
    pub(crate) address_map: Option<AddressMap>,
    pub(crate) refresh_interval: Option<Duration>,
    pub(crate) min_refresh_interval: Duration,
    pub(crate) max_redirects: u32,
    pub(crate) silence_limit: Option<Duration>,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            read_from: ReadFrom::Primary,
            address_map: None,
            refresh_interval: Some(Duration::from_secs(60)),
            min_refresh_interval: Duration::from_millis(250),
            max_redirects: 16,
            silence_limit: Some(Duration::from_secs(1)),
        }
    }
}

/// Settings of clients of clusters. Other clients ignore them.
impl Config {
    /// Which nodes answer commands that only read. Default [`ReadFrom::Primary`].
    #[must_use]
    pub fn read_from(mut self, strategy: ReadFrom) -> Self {
        self.cluster.read_from = strategy;
        self
    }

    /// A function from the address that a node announces to the address to connect to. `None` from the function means:
    /// use the rule of the URL (`rdma_port=`). It takes precedence over that rule, and is called before each attempt to
    /// connect to a node.
    ///
    /// ```
    /// use valkey_rdma_client::Config;
    /// use valkey_rdma_client::cluster::{MappedAddress, NodeAddress};
    ///
    /// let config = Config::default().address_map(|announced| {
    ///     // The cluster talks over 10.1.*, and its RDMA adapters are on 10.2.*.
    ///     let host = announced.host.strip_prefix("10.1.")?;
    ///     Some(MappedAddress::At(NodeAddress::new(format!("10.2.{host}"), announced.port)))
    /// });
    /// ```
    #[must_use]
    pub fn address_map(
        mut self,
        map: impl Fn(&NodeAddress) -> Option<MappedAddress> + Send + Sync + 'static,
    ) -> Self {
        self.cluster.address_map = Some(Arc::new(map));
        self
    }

    /// How often the slot map is read again although nothing has failed. Default 60 s, randomised by a quarter; `None`:
    /// only after failures and redirections. Shorter finds new replicas earlier; longer spares the cluster.
    #[must_use]
    pub fn refresh_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.cluster.refresh_interval = interval.into();
        self
    }

    /// The shortest time between two readings of the slot map. Default 250 ms, and doubled up to 4 times that for as long
    /// as readings bring nothing new. Shorter finds a new primary earlier; longer spares a cluster with many clients.
    #[must_use]
    pub fn min_refresh_interval(mut self, interval: Duration) -> Self {
        self.cluster.min_refresh_interval = interval;
        self
    }

    /// How often one command follows MOVED and ASK before it fails with
    /// [`ClusterError::Redirected`](crate::ClusterError::Redirected). Default 16.
    #[must_use]
    pub fn max_redirects(mut self, times: u32) -> Self {
        self.cluster.max_redirects = times;
        self
    }

    /// How long a node may leave commands unanswered before the slot map is read again, from other nodes. Default 1 s; `None`:
    /// no limit. If a primary has lost its slots to another, its connection ends: commands that may run twice go to the new
    /// primary, and the others fail with [`Fate::MayHaveRun`](crate::Fate::MayHaveRun). If it has kept them, they wait on.
    /// Calls on connections of their own ([`dedicated`](crate::cluster::Cluster::dedicated), large values, WATCH, commands that block) to such a primary
    /// end too, once it has also left a PING without an answer for as long: what it owes may be a large value that takes its time.
    /// New reads pass a silent replica over; those that were sent to it go elsewhere once the map leaves it out.
    /// Shorter finds the new primary of a frozen node earlier; longer asks less often while a node runs long commands.
    #[must_use]
    pub fn silence_limit(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.cluster.silence_limit = limit.into();
        self
    }
}

impl fmt::Debug for ClusterConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterConfig")
            .field("read_from", &self.read_from)
            .field("address_map", &self.address_map.is_some())
            .field("refresh_interval", &self.refresh_interval)
            .field("min_refresh_interval", &self.min_refresh_interval)
            .field("max_redirects", &self.max_redirects)
            .field("silence_limit", &self.silence_limit)
            .finish()
    }
}
