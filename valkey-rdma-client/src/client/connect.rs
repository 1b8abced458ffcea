//! How a [`Client`] comes to its connections.

use std::future::Future;
use std::io;

use tokio::io::{AsyncRead, AsyncWrite};

use super::{Client, Deployment};
use crate::cluster::Cluster;
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::events::ServerEvents;
use crate::into_endpoint::IntoEndpoint;
use crate::server::Server;

impl From<Server> for Client {
    fn from(server: Server) -> Self {
        Self { deployment: Deployment::Server(server) }
    }
}

impl Client {
    /// Connects to a URL, an [`Endpoint`], or a list of these that names nodes of a cluster, with the default [`Config`]: resolves the
    /// name, tries its addresses in order, logs in and selects the database, all within the endpoint's timeout. Must run inside a tokio
    /// runtime, which then drives the connection.
    ///
    /// ```no_run
    /// use valkey_rdma_client::Client;
    ///
    /// # async fn example() -> Result<(), valkey_rdma_client::Error> {
    /// let server = Client::connect("rdma://10.0.0.7").await?;
    /// let service = Client::connect("rdma+sentinel://10.0.0.1,10.0.0.2/mymaster").await?;
    /// let cluster = Client::connect("rdma+cluster://10.0.0.1,10.0.0.2").await?;
    /// let same = Client::connect(["rdma://10.0.0.1", "rdma://10.0.0.2"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Of a cluster, one node that answers is enough, and none of those given is special afterwards.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if a URL is invalid; otherwise [`Error::Connect`] with the step that failed. Of a cluster: [`Error::Cluster`] if
    /// no node answers, or the answer does not describe a cluster. With one node only, its own error. A cluster whose slots have no
    /// nodes yet is one: its commands wait.
    ///
    /// # Panics
    /// Outside of a tokio runtime, when polled.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the attempt and closes what was opened.
    pub async fn connect(endpoint: impl IntoEndpoint) -> Result<Self, Error> {
        Self::connect_with(endpoint, &Config::default()).await
    }

    /// Connects as [`connect`](Self::connect) does, with the given [`Config`].
    ///
    /// # Errors
    /// Same errors as [`connect`](Self::connect). With several connections, one failure fails the call and closes the
    /// others.
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    pub async fn connect_with(endpoint: impl IntoEndpoint, config: &Config) -> Result<Self, Error> {
        let endpoint = endpoint.into_endpoint()?;
        endpoint.check()?;
        if endpoint.is_cluster() {
            let cluster = Cluster::connect(endpoint, config).await?;
            return Ok(Self { deployment: Deployment::Cluster(cluster) });
        }
        endpoint.check_single()?;
        let connector = Server::connector_for(endpoint, config.clone());
        Ok(Server::start(connector, None, ServerEvents::alone()).await?.into())
    }

    /// Connects to one server over streams that `dialer` returns: Unix sockets, a tunnel. The dialer is called for every
    /// connection, also after a lost one. Of the endpoint, only login, database, protocol, timeout and [TLS](Endpoint::with_tls) are used,
    /// with the host as the server's name, and host and port in error texts. A stream is read on the connection task. It is written there or, if nothing
    /// is in flight, on the thread of a caller, always within the runtime of this call.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), valkey_rdma_client::Error> {
    /// use tokio::net::UnixStream;
    /// use valkey_rdma_client::{Client, Config};
    ///
    /// let connect = || UnixStream::connect("/run/valkey.sock");
    /// let client = Client::connect_with_dialer("valkey://localhost", &Config::default(), connect).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Self::connect). [`Error::Endpoint`] for Sentinels and clusters.
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    pub async fn connect_with_dialer<S, F>(
        endpoint: impl IntoEndpoint,
        config: &Config,
        dialer: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
    {
        Ok(Server::dialed(endpoint.into_endpoint()?, config, dialer).await?.into())
    }

    /// Logs in over a stream that is already connected. The client cannot reconnect: once lost, the connection stays
    /// lost. Nor can it open another, so that [commands that overtake](Self#commands-that-overtake) are sent as any command. Otherwise as
    /// [`connect_with_dialer`](Self::connect_with_dialer).
    ///
    /// # Errors
    /// As [`connect_with_dialer`](Self::connect_with_dialer).
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream.
    pub async fn from_stream<S>(stream: S, endpoint: &Endpoint) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Self::from_stream_with(stream, endpoint, &Config::default()).await
    }

    /// Logs in over a stream as [`from_stream`](Self::from_stream) does, with the given [`Config`]. Its settings for several
    /// connections and for reconnecting do not apply.
    ///
    /// A [`Stream`](valkey_rdma_transport::Stream) of the transport is driven as the client's own connections are: with the transport's
    /// counters and without a task of its own.
    ///
    /// # Errors
    /// As [`connect_with_dialer`](Self::connect_with_dialer).
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream.
    pub async fn from_stream_with<S>(stream: S, endpoint: &Endpoint, config: &Config) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Ok(Server::over(stream, endpoint.clone(), config).await?.into())
    }
}
