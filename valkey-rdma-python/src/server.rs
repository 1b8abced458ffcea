//! [`Server`]: what an engine talks to, one server or a cluster.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use valkey_rdma_client::cluster::{ClusterConfig, ReadFrom};
use valkey_rdma_client::{Client, ClusterClient, Command, Config, Error, Execute, Subscriber, Value};

/// Where to connect to.
pub(crate) enum Target {
    One(String),
    Cluster { urls: Vec<String>, read_from: ReadFrom },
}

/// The client of one server, or of a cluster.
#[derive(Clone)]
pub(crate) enum Server {
    One(Client),
    Cluster(ClusterClient),
}

impl Server {
    pub(crate) async fn connect(target: Target, config: Config) -> Result<Self, Error> {
        Ok(match target {
            Target::One(url) => Self::One(Client::connect_with(url.as_str(), &config).await?),
            Target::Cluster { urls, read_from } => {
                let config = ClusterConfig::default().node(config).read_from(read_from);
                Self::Cluster(ClusterClient::connect_with(urls.iter().map(String::as_str), &config).await?)
            }
        })
    }

    /// The name of the blocking class.
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Self::One(_) => "Client",
            Self::Cluster(_) => "ClusterClient",
        }
    }

    pub(crate) async fn execute(&self, command: Command) -> Result<Value, Error> {
        match self {
            Self::One(client) => client.execute(command).await,
            Self::Cluster(cluster) => cluster.execute(command).await,
        }
    }

    pub(crate) async fn block(&self, arguments: Vec<Bytes>) -> Result<Value, Error> {
        match self {
            Self::One(client) => client.blocking_command(arguments).await,
            Self::Cluster(cluster) => cluster.blocking_command(arguments).await,
        }
    }

    /// Sends commands together. Each has its own result.
    pub(crate) async fn pipeline(
        &self,
        commands: Vec<Command>,
        limit: Option<Duration>,
    ) -> Result<Vec<Result<Value, Error>>, Error> {
        let limited = commands.into_iter().map(|command| match limit {
            Some(limit) => command.timeout(limit),
            None => command,
        });
        match self {
            Self::One(client) => client.execute_all(limited.collect()).await,
            Self::Cluster(cluster) => cluster.execute_all(limited.collect()).await,
        }
    }

    pub(crate) async fn subscriber(&self) -> Result<Subscriber, Error> {
        match self {
            Self::One(client) => client.subscriber().await,
            Self::Cluster(cluster) => cluster.subscriber().await,
        }
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::One(client) => client.close().await,
            Self::Cluster(cluster) => cluster.close().await,
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(client) => write!(f, "{}", client.info()),
            Self::Cluster(cluster) => write!(f, "of {} nodes", cluster.status().nodes.len()),
        }
    }
}
