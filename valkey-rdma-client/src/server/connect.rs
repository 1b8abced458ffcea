//! How a [`Client`] is made: from a URL, over a dialer, over a stream.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout_at};
use valkey_rdma_transport::Duplex;

use super::{Inner, Server};
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::error::{Error, LostConnection};
use crate::events::{EventHub, EventReporter};
use crate::into_endpoint::IntoEndpoint;
use crate::link::{Connector, IdlePool, Liveness, RawConnection};
use crate::link::{Multiplexer, PushHook, ReconnectPolicy};
use crate::runtime::Runtime;
use crate::stats::Purpose;

impl Server {
    /// Connects to a URL or an [`Endpoint`] with the default [`Config`]: resolves the name, tries its addresses in
    /// order, logs in and selects the database, all within the endpoint's timeout. Must run inside a tokio runtime,
    /// which then drives the connection.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if the URL is invalid; otherwise [`Error::Connect`] with the step that failed.
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
        endpoint.check_single()?;
        Self::start(Self::connector_for(endpoint, config.clone()), None).await
    }

    /// Connects over streams that `dialer` returns: Unix sockets, TLS, a tunnel. The dialer is called for every
    /// connection, also after a lost one. Of the endpoint, only login, database, protocol and timeout are used, and
    /// host and port in error texts. A stream is read on the connection task. It is written there or, if nothing
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
    /// As [`connect`](Self::connect).
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
        let endpoint = endpoint.into_endpoint()?;
        endpoint.check()?;
        endpoint.check_direct()?;
        let dialer = Box::new(move || {
            let stream = dialer();
            Box::pin(async move { stream.await.map(|stream| Box::new(stream) as Box<dyn Duplex>) }) as _
        });
        Self::start(Connector::dialing(endpoint, config.clone(), dialer), None).await
    }

    /// Logs in over a stream that is already connected. The client cannot reconnect: once lost, the connection stays
    /// lost. Nor can it open another, so that [commands that overtake](Self#commands-that-overtake) are sent as any command. Otherwise as
    /// [`connect_with_dialer`](Self::connect_with_dialer).
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
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
    /// A [`transport::Stream`](crate::transport::Stream) is driven as the client's own connections are: with the transport's
    /// counters and without a task of its own.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream.
    pub async fn from_stream_with<S>(stream: S, endpoint: &Endpoint, config: &Config) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connector = Arc::new(Connector::once(endpoint.clone(), config.clone()));
        let raw = connector.log_in(stream).await?;
        let events = Arc::new(EventHub::new(1));
        let reporter = EventReporter::new(events.clone(), 0);
        let multiplexer = Multiplexer::start(raw, endpoint.authority().into(), None, None, reporter);
        Ok(Self::assemble(vec![multiplexer], connector, events))
    }

    /// Makes all connections, one after the other: a server has one thread to accept them, and memory to pin.
    pub(crate) async fn start(connector: Connector, pushes: Option<PushHook>) -> Result<Self, Error> {
        let connector = Arc::new(connector);
        let config = &connector.config;
        let policy =
            config.reconnect.map(|backoff| ReconnectPolicy { connector: connector.clone(), backoff });
        let peer: Arc<str> = connector.endpoint.authority().into();
        let mut multiplexers = Vec::with_capacity(config.connections);
        let events = Arc::new(EventHub::new(config.connections));
        for connection in 0..config.connections {
            let raw = connector.connect(Purpose::Shared).await?;
            let reporter = EventReporter::new(events.clone(), connection);
            let (policy, pushes) = (policy.clone(), pushes.clone());
            multiplexers.push(Multiplexer::start(raw, peer.clone(), policy, pushes, reporter));
        }
        Ok(Self::assemble(multiplexers, connector, events))
    }

    /// Makes one more connection. While the client reconnects, this waits for the server as long as commands do.
    pub(crate) async fn connect_another(&self, purpose: Purpose) -> Result<RawConnection, Error> {
        let client = self.clone();
        let connected = self.runtime().run(async move { client.connect_here(purpose).await }).await;
        connected.unwrap_or_else(|| Err(LostConnection { may_have_run: false, ..self.lost_error() }.into()))
    }

    /// Makes one more connection, on the current runtime.
    async fn connect_here(&self, purpose: Purpose) -> Result<RawConnection, Error> {
        let connector = self.connector();
        // Before the attempt, so that no news is missed.
        let mut reached = connector.reached.subscribe();
        let begin = Instant::now();
        let patience = self.config().offline_timeout.and_then(|limit| begin.checked_add(limit));
        let backoff = self.config().reconnect;
        let (mut attempt, mut loading) = (0, None);
        loop {
            self.check_open()?;
            let connected = match loading.is_some() || self.is_reconnecting() {
                true => connector.connect_loaded(purpose, &mut loading).await,
                false => connector.connect(purpose).await,
            };
            let error = match connected {
                Ok(raw) => {
                    self.check_open()?;
                    return Ok(raw);
                }
                Err(error) => error,
            };
            // A server that refuses the login is there: waiting does not change its mind.
            let Some(backoff) = backoff.filter(|_| !error.refuses_login()) else { return Err(error.into()) };
            let wait = if reached.has_changed().unwrap_or_default() {
                Instant::now()
            } else if self.is_reconnecting() {
                // The next connection is news.
                patience.unwrap_or_else(|| Instant::now() + FOREVER)
            } else if begin.elapsed() < UNNOTICED_LOSS && !error.cause().is_final() {
                // The shared connections may not have noticed yet that the server is gone.
                Instant::now() + backoff.wait(attempt).min(UNNOTICED_LOSS)
            } else {
                return Err(error.into());
            };
            // Whether there was news or time has passed, it is time for the next attempt.
            drop(timeout_at(wait, reached.changed()).await);
            if patience.is_some_and(|end| end <= Instant::now()) {
                return Err(error.into());
            }
            attempt += 1;
        }
    }

    pub(crate) fn assemble(
        multiplexers: Vec<Multiplexer>,
        connector: Arc<Connector>,
        events: Arc<EventHub>,
    ) -> Self {
        let turn = AtomicUsize::new(0);
        let (pool, runtime) = (IdlePool::default(), Runtime::here());
        let liveness = Arc::new(Liveness::default());
        let inner = Inner { multiplexers, turn, connector, pool, events, runtime, liveness };
        Self { inner: Arc::new(inner) }
    }
}

/// How long a lost connection may take to be noticed, while another already finds the server gone.
const UNNOTICED_LOSS: Duration = Duration::from_secs(1);

/// Stands for no limit.
const FOREVER: Duration = Duration::from_secs(24 * 3600);
