//! [`Cluster`]: a client's view of its cluster, and its way to send commands there.

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use valkey_rdma_resp::Value;

use super::call::Target;
use super::core::Core;
use super::route::{Routed, route, slot_of};
use crate::command::Command;
use crate::command::table::{Access, Description, find, only_key};
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::events::ConnectionEvents;
use crate::link::Deadline;
use crate::server::Server;
use crate::stats::ConnectionInfo;

/// The cluster that a client talks to: [`Client::cluster`](crate::Client::cluster). It keeps the client open, as a clone of it does.
///
/// ```no_run
/// use valkey_rdma_client::Client;
///
/// # async fn example() -> Result<(), valkey_rdma_client::Error> {
/// let client = Client::connect("rdma+cluster://10.0.0.1,10.0.0.2").await?;
/// client.command(["SET", "greeting", "hello"]).await?;
/// let values = client.command(["MGET", "greeting", "another"]).await?; // from two nodes
/// if let Some(cluster) = client.cluster() {
///     println!("{}", cluster.status());
/// }
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
    /// Connects to the cluster of an endpoint. Must run inside a runtime.
    pub(crate) async fn connect(endpoint: Endpoint, config: &Config) -> Result<Self, Error> {
        Ok(Self { core: Arc::new(Core::connect(endpoint, config).await?) })
    }

    /// What the client was given.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.core.endpoint
    }

    /// The nodes that are connected.
    pub(crate) fn servers(&self) -> Vec<Server> {
        self.core.topology.every_node().into_iter().filter_map(|node| node.live()).collect()
    }

    /// Describes a connection to some node.
    pub(crate) fn info(&self) -> Arc<ConnectionInfo> {
        let servers = self.servers();
        let some = servers.iter().find(|server| server.is_connected()).or(servers.first());
        let plain = || ConnectionInfo::plain(self.endpoint().transport(), self.endpoint().protocol());
        some.map_or_else(|| Arc::new(plain()), Server::info)
    }

    /// Sends a command to the node of its keys, or to the nodes that its description names, and returns its reply.
    pub(crate) async fn execute(&self, command: Command) -> Result<Value, Error> {
        if let Some(refusal) = command.shared_refusal() {
            return Err(refusal.into());
        }
        // Nearly all commands have one key. For all others, a boxed future finds the nodes. Its type is not seen from outside, because the
        // compiler limits how deep futures may nest.
        match only_key(&command).map(|(key, access)| (slot_of(key), access)) {
            Some((slot, access)) => {
                let limit = self.core.config.limit(&command);
                self.core.send_to_slot(command, slot, access, limit).await
            }
            None => self.execute_found(command).boxed().await,
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

    pub(crate) fn events(&self) -> ConnectionEvents {
        let up = || self.servers().iter().flat_map(Server::up).collect::<Vec<_>>();
        self.core.topology.events().listen(up)
    }

    /// True once the client was closed, or the runtime that connected it has shut down.
    pub(crate) fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    /// Closes the connections to all nodes, each as [`Client::close`] does, at the same time.
    pub(crate) async fn close(&self) {
        let clients = self.core.close();
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
        let limit = self.core.config.limit(&command);
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
