//! [`Caller`]: the client of the library that tasks share, of one server or of a cluster.

use std::sync::Arc;

use valkey_rdma_client::{Client, ClusterClient, Command, ConnectionInfo, Error, Purpose, Value};
use valkey_rdma_transport::Stats;

/// A client of the library. Clones share its connections.
#[derive(Clone)]
pub(super) enum Caller {
    One(Client),
    /// One connection to each node that has keys.
    Cluster(ClusterClient),
}

impl Caller {
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Caller::One(client) => client.is_closed(),
            Caller::Cluster(client) => client.is_closed(),
        }
    }

    pub(super) async fn execute(&self, command: Command) -> Result<Value, Error> {
        match self {
            Caller::One(client) => client.execute(command).await,
            Caller::Cluster(client) => client.execute(command).await,
        }
    }

    /// The transport's counters of each connection that has them.
    pub(super) fn stats(&self) -> Vec<Stats> {
        match self {
            Caller::One(client) => {
                let connections = client.connections().into_iter();
                let shared = connections.filter(|connection| connection.purpose == Purpose::Shared);
                shared.filter_map(|connection| connection.stats).collect()
            }
            Caller::Cluster(client) => {
                let nodes = client.status().nodes.into_iter().flat_map(|node| node.connections);
                nodes.filter_map(|connection| connection.stats).collect()
            }
        }
    }

    /// What the first connection runs on.
    pub(super) fn info(&self) -> Option<Arc<ConnectionInfo>> {
        match self {
            Caller::One(client) => Some(client.info()),
            Caller::Cluster(client) => {
                let mut nodes = client.status().nodes.into_iter().flat_map(|node| node.connections);
                nodes.next().map(|connection| connection.info)
            }
        }
    }
}
