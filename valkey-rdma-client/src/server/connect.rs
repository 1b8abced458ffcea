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
use crate::events::ServerEvents;
use crate::link::{Connector, IdlePool, RawConnection};
use crate::link::{Multiplexer, PushHook, ReconnectPolicy};
use crate::question::Question;
use crate::runtime::Runtime;
use crate::stats::Purpose;

impl Server {
    /// Connects over streams that `dialer` returns.
    pub(crate) async fn dialed<S, F>(
        endpoint: Endpoint,
        config: &Config,
        dialer: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
    {
        endpoint.check()?;
        endpoint.check_direct()?;
        let dialer = Box::new(move || {
            let stream = dialer();
            Box::pin(async move { stream.await.map(|stream| Box::new(stream) as Box<dyn Duplex>) }) as _
        });
        let connector = Connector::dialing(endpoint, config.clone(), dialer);
        Self::start(connector, None, ServerEvents::alone()).await
    }

    /// Logs in over a stream that is already connected.
    pub(crate) async fn over<S>(stream: S, endpoint: Endpoint, config: &Config) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        endpoint.check_direct()?;
        let peer: Arc<str> = endpoint.authority().into();
        let connector = Arc::new(Connector::once(endpoint, config.clone()));
        let raw = connector.log_in(stream).await?;
        let events = ServerEvents::alone();
        let multiplexer = Multiplexer::start(raw, peer, None, None, events.reporter(0));
        Ok(Self::assemble(vec![multiplexer], connector, events))
    }

    /// Makes all connections, one after the other: a server has one thread to accept them, and memory to pin.
    pub(crate) async fn start(
        connector: Connector,
        pushes: Option<PushHook>,
        events: Arc<ServerEvents>,
    ) -> Result<Self, Error> {
        let connector = Arc::new(connector);
        let config = &connector.config;
        let policy =
            config.reconnect.map(|backoff| ReconnectPolicy { connector: connector.clone(), backoff });
        let peer: Arc<str> = connector.endpoint.authority().into();
        let mut multiplexers = Vec::with_capacity(config.connections);
        for connection in 0..config.connections {
            let raw = connector.connect(Purpose::Shared).await?;
            let reporter = events.reporter(connection);
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
        events: Arc<ServerEvents>,
    ) -> Self {
        events.complete();
        let turn = AtomicUsize::new(0);
        let (pool, runtime) = (IdlePool::default(), Runtime::here());
        let (question, early_question) = (Question::default(), Question::default());
        let inner = Inner { multiplexers, turn, connector, pool, events, runtime, question, early_question };
        Self { inner: Arc::new(inner) }
    }
}

/// How long a lost connection may take to be noticed, while another already finds the server gone.
const UNNOTICED_LOSS: Duration = Duration::from_secs(1);

/// Stands for no limit.
const FOREVER: Duration = Duration::from_secs(24 * 3600);
