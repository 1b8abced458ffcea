//! [`ClusterClient`]: the handle that tasks share.

use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;
use valkey_rdma_resp::{FromValue, Value};

use super::call::Target;
use super::config::ClusterConfig;
use super::core::Core;
use super::route::{Routed, route, slot_of};
use crate::command::table::{Access, Description, find, only_key};
use crate::command::{Command, IntoCommand};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::into_endpoint::IntoEndpoints;
use crate::link::Deadline;
use crate::server::Server;

/// A client of a cluster, shared by any number of tasks. Cloning is cheap; every clone is the same client.
///
/// ```no_run
/// use valkey_rdma_client::ClusterClient;
///
/// # async fn example() -> Result<(), valkey_rdma_client::Error> {
/// let cluster = ClusterClient::connect(["rdma://10.0.0.1:6379", "rdma://10.0.0.2:6379"]).await?;
/// cluster.command(["SET", "greeting", "hello"]).await?;
/// let values = cluster.command(["MGET", "greeting", "another"]).await?; // from two nodes
/// println!("{}", cluster.status());
/// # Ok(())
/// # }
/// ```
///
/// See the [module](crate::cluster) for how commands find their nodes and what happens when something fails.
#[derive(Clone)]
pub struct Cluster {
    pub(super) core: Arc<Core>,
}

impl Cluster {
    /// Connects to a cluster with the default [`ClusterConfig`]. The servers given are asked for the nodes of the
    /// cluster; one that answers is enough, and none of them is special afterwards. All must have the same scheme, login
    /// and options, which the other nodes get too.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if a URL is invalid. [`Error::Cluster`] if no server answers, or the answer does not describe a
    /// cluster. With one server only, its own error. A cluster whose slots have no nodes yet is one: its commands wait.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the attempt and closes what was opened.
    pub async fn connect(seeds: impl IntoEndpoints) -> Result<Self, Error> {
        Self::connect_with(seeds, &ClusterConfig::default()).await
    }

    /// Connects as [`connect`](Self::connect) does, with the given [`ClusterConfig`].
    ///
    /// # Errors
    /// Same errors as [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// Same as [`connect`](Self::connect).
    pub async fn connect_with(seeds: impl IntoEndpoints, config: &ClusterConfig) -> Result<Self, Error> {
        Ok(Self { core: Arc::new(Core::connect(seeds.into_endpoints()?, config).await?) })
    }

    /// Checks the servers to start from, as [`connect`](Self::connect) does before it connects.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if one is invalid. [`Error::Cluster`] if there are none, or they differ in more than their address.
    pub fn check(seeds: &[Endpoint]) -> Result<(), Error> {
        super::core::check(seeds).map(drop)
    }

    /// Sends a command and returns its reply.
    ///
    /// # Errors
    /// Same errors as [`Client::command`]. [`Error::Cluster`] if the keys belong to different slots or no node serves
    /// them.
    ///
    /// # Cancel safety
    /// Dropping the future discards the reply. The command may or may not run.
    pub async fn command(&self, command: impl IntoCommand) -> Result<Value, Error> {
        self.execute(command.into_command()).await
    }

    /// Sends a command and converts its reply, as [`Client::query`] does.
    ///
    /// # Errors
    /// Same errors as [`command`](Self::command), and [`Error::Unexpected`] if the reply does not convert.
    ///
    /// # Cancel safety
    /// Same as [`command`](Self::command).
    pub async fn query<T: FromValue>(&self, command: impl IntoCommand) -> Result<T, Error> {
        let command = command.into_command();
        let name = command.kept_name();
        Ok(name.convert(self.execute(command).await?)?)
    }

    /// Does what [`command`](Self::command) does: the method that [`Execute`](crate::Execute) has too.
    ///
    /// # Errors
    /// Same errors as [`command`](Self::command).
    ///
    /// # Cancel safety
    /// Same as [`command`](Self::command).
    pub async fn execute(&self, mut command: Command) -> Result<Value, Error> {
        if let Some(refusal) = command.shared_refusal() {
            return Err(refusal.into());
        }
        // Nearly all commands have one key. For all others, a boxed future finds the nodes.
        match only_key(&command).map(|(key, access)| (slot_of(key), access)) {
            Some((slot, access)) => {
                if access == Access::Read {
                    command.set_idempotent();
                }
                let limit = self.core.config.node.limit(&command);
                self.core.send_to_slot(command, slot, access, limit).await
            }
            None => Box::pin(self.execute_found(command)).await,
        }
    }

    async fn execute_found(&self, command: Command) -> Result<Value, Error> {
        match find(&command) {
            Some(description) => self.execute_described(command, description).await,
            None => self.execute_unknown(command).await,
        }
    }

    /// Describes the cluster as this client knows it now: slots, nodes, transports, counters.
    #[must_use]
    pub fn status(&self) -> super::ClusterStatus {
        super::ClusterStatus::of(&self.core)
    }

    /// What happens from now on to the connections that tasks share, node by node: connected, over TCP instead of RDMA, lost,
    /// not restored, closed. Also that other nodes are primaries. The first events describe the connections that are up.
    ///
    /// ```no_run
    /// # async fn example(cluster: valkey_rdma_client::ClusterClient) {
    /// let mut events = cluster.events();
    /// tokio::spawn(async move {
    ///     while let Some(event) = events.next().await {
    ///         println!("{event}"); // 10.0.0.2:6379: connection 0 lost: the peer closed it
    ///     }
    /// });
    /// # }
    /// ```
    ///
    /// Keeping the events does not keep the client open.
    #[must_use]
    pub fn events(&self) -> super::ClusterEvents {
        let topology = &self.core.topology;
        topology.events().listen(|| {
            let nodes = topology.every_node().into_iter();
            nodes.filter_map(|node| Some((node.address().clone(), node.live()?))).collect()
        })
    }

    /// True once the client was closed, or the runtime that connected it has shut down.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    /// Closes the connections to all nodes, each as [`Client::close`] does, at the same time.
    ///
    /// # Cancel safety
    /// Once polled, dropping the future does not stop the closing.
    pub async fn close(&self) {
        self.core.close();
        let clients = self.core.topology.every_node().into_iter().filter_map(|node| node.close());
        let clients: Vec<_> = clients.collect();
        join_all(clients.iter().map(Server::close)).await;
    }

    pub(super) async fn execute_described(
        &self,
        mut command: Command,
        description: &Description<'_>,
    ) -> Result<Value, Error> {
        if description.access == Access::Read {
            command.set_idempotent();
        }
        let limit = self.core.config.node.limit(&command);
        match route(&command, description)? {
            Routed::Slot(slot) => self.core.send_to_slot(command, slot, description.access, limit).await,
            Routed::Any => {
                let deadline = limit.and_then(Deadline::after);
                self.core.send_to(Target::Any, Box::new(command), deadline).await
            }
            Routed::Split => self.execute_split(command, description).await,
            Routed::AllPrimaries(response) => self.fan_out(command, self.all_primaries(), response).await,
            Routed::AllNodes(response) => self.fan_out(command, self.all_nodes(), response).await,
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let map = self.core.topology.map();
        f.debug_struct("Cluster").field("shards", &map.shards().len()).finish_non_exhaustive()
    }
}
