//! redis-rs's own cluster client over RDMA: [`NodeConnection`] is what it connects to each node with.
//!
//! For programs that want redis-rs's `ClusterConnection` itself: its routing, its retries, its pub/sub. Others take
//! [`ClusterClient`](crate::ClusterClient), which runs redis-rs's commands too, and has what the other lacks; see
//! `docs/redis-rs.md`.
//!
//! ```no_run
//! # async fn example() -> redis::RedisResult<()> {
//! use redis::AsyncCommands;
//! use redis::cluster::ClusterClient;
//! use valkey_rdma_client::redis_cluster::NodeConnection;
//!
//! // redis-rs knows no rdma:// URLs. The type of the connection chooses RDMA.
//! let client = ClusterClient::new(["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"])?;
//! let mut con = client.get_async_generic_connection::<NodeConnection>().await?;
//! let () = con.set("greeting", "hello").await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//! - redis-rs supports other types of connections, but leaves `get_async_generic_connection` out of its documentation.
//! - redis-rs passes host, port, login and its own settings to a connection, and nothing else. So scheme and options of the
//!   URLs come from a type: [`NodeSettings`].
//! - Errors have no [`Fate`](crate::Fate). redis-rs decides which commands are sent again after a lost connection.
//! - TLS is refused.
//! - With [`RdmaPort::Discover`](crate::RdmaPort::Discover), nodes are asked over TCP without the login.

use std::fmt;
use std::marker::PhantomData;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::Connect;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo, Pipeline, RedisFuture, Value,
};
use tokio::time::timeout;

use crate::cluster::{NodeAddress, PortRules};
use crate::config::Config;
use crate::dialer::Dialer;
use crate::endpoint::Endpoint;
use crate::error::Error;

/// How [`NodeConnection`]s reach the nodes of a cluster.
///
/// ```
/// use valkey_rdma_client::redis_cluster::NodeSettings;
/// use valkey_rdma_client::{Endpoint, Error};
///
/// /// RDMA ports are TCP ports plus 100. Nodes without RDMA are reached over TCP.
/// enum OurFabric {}
///
/// impl NodeSettings for OurFabric {
///     fn endpoint() -> Result<Endpoint, Error> {
///         Ok("rdma://any?rdma_port=+100&fallback=tcp".parse()?)
///     }
/// }
/// ```
pub trait NodeSettings: 'static {
    /// The endpoint whose transport and options all nodes get. Its host, port, login and database do not matter: those are
    /// redis-rs's. Called for every connection.
    ///
    /// # Errors
    /// Any: redis-rs reports it as a failure to connect.
    fn endpoint() -> Result<Endpoint, Error>;
}

/// RDMA on the announced port, with default options: what a [`NodeConnection`] uses, unless its type says otherwise.
#[derive(Debug)]
pub enum Rdma {}

impl NodeSettings for Rdma {
    fn endpoint() -> Result<Endpoint, Error> {
        Ok("rdma://any".parse()?)
    }
}

/// The connection to one node: redis-rs's multiplexer on this crate's transport. See the [module](self).
pub struct NodeConnection<S = Rdma> {
    connection: MultiplexedConnection,
    settings: PhantomData<fn() -> S>,
}

impl<S: NodeSettings> Connect for NodeConnection<S> {
    fn connect_with_config<'a, T>(info: T, config: AsyncConnectionConfig) -> RedisFuture<'a, Self>
    where
        T: IntoConnectionInfo + Send + 'a,
    {
        Box::pin(async move {
            let info = info.into_connection_info()?;
            let ConnectionAddr::Tcp(host, port) = info.addr() else {
                return Err((ErrorKind::InvalidClientConfig, "no TLS over RDMA: use redis:// URLs").into());
            };
            let template = S::endpoint()?;
            let limit = template.timeout();
            let connect = async {
                let announced = NodeAddress::new(host, *port);
                let endpoint = PortRules::new(template).endpoint(&announced).await?;
                let stream = Dialer::new(endpoint, &Config::default())?.dial().await?;
                let settings = info.redis_settings();
                let (connection, driver) =
                    MultiplexedConnection::new_with_config(settings, stream, config).await?;
                tokio::spawn(driver);
                Ok(Self { connection, settings: PhantomData })
            };
            // A server that accepts and never answers the login.
            timeout(limit, connect).await.unwrap_or_else(|_| {
                let reason = format!("no connection within {limit:?}");
                Err((ErrorKind::Io, "timed out", reason).into())
            })
        })
    }
}

impl<S> ConnectionLike for NodeConnection<S> {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        self.connection.req_packed_command(cmd)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}

impl<S> Clone for NodeConnection<S> {
    fn clone(&self) -> Self {
        Self { connection: self.connection.clone(), settings: PhantomData }
    }
}

impl<S> fmt::Debug for NodeConnection<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeConnection").field("connection", &self.connection).finish()
    }
}
