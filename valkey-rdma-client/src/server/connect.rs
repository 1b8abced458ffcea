//! How a [`Client`] is made: from a URL, over a dialer, over a stream.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;
use valkey_rdma_transport::Duplex;

use super::{Inner, Server};
use crate::bulk::Bulk;
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::error::{Error, LostConnection};
use crate::events::ServerEvents;
use crate::link::{Connector, Deadline, IdlePool, Liveness, RawConnection};
use crate::link::{Multiplexer, PushHook, Redialer};
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
        let reconnects = config.reconnect.map(|_| connector.clone());
        let peer: Arc<str> = connector.peer().into();
        let mut multiplexers = Vec::with_capacity(config.connections);
        for connection in 0..config.connections {
            let raw = connector.connect(Purpose::Shared).await?;
            let reporter = events.reporter(connection);
            let (reconnects, pushes) = (reconnects.clone(), pushes.clone());
            multiplexers.push(Multiplexer::start(raw, peer.clone(), reconnects, pushes, reporter));
        }
        Ok(Self::assemble(multiplexers, connector, events))
    }

    /// Until when a call that begins now waits for a server that is away: as long as commands do, and not past its deadline.
    pub(crate) fn patience(&self, deadline: Option<Deadline>) -> Option<Instant> {
        let offline = self.config().offline_timeout.and_then(|limit| Instant::now().checked_add(limit));
        offline.into_iter().chain(deadline.map(|deadline| deadline.at)).min()
    }

    /// Makes one more connection. While the client reconnects, this waits for the server as long as commands do.
    pub(crate) async fn connect_another(&self, purpose: Purpose) -> Result<RawConnection, Error> {
        let (raw, _connecting) = self.connect_another_until(purpose, self.patience(None)).await?;
        Ok(raw)
    }

    /// Makes one more connection. While the client reconnects, this waits for the server until `end`. Returns how long connecting took too,
    /// without that wait.
    pub(crate) async fn connect_another_until(
        &self,
        purpose: Purpose,
        end: Option<Instant>,
    ) -> Result<(RawConnection, Duration), Error> {
        // The attempts are a part of the call that waits for them.
        let connect = self.clone().connect_here(purpose, end).in_current_span();
        let connected = self.runtime().run(connect).await;
        connected.unwrap_or_else(|| Err(LostConnection { may_have_run: false, ..self.lost_error() }.into()))
    }

    /// Makes one more connection, on the current runtime.
    async fn connect_here(
        self,
        purpose: Purpose,
        end: Option<Instant>,
    ) -> Result<(RawConnection, Duration), Error> {
        let connector = self.connector();
        let begin = Instant::now();
        // Before the attempt, so that no news is missed.
        let Some(mut redialer) = Redialer::of(connector) else {
            self.check_open()?;
            let raw = connector.connect(purpose).await?;
            self.check_open()?;
            return Ok((raw, begin.elapsed()));
        };
        loop {
            self.check_open()?;
            let attempt = Instant::now();
            let connected = match redialer.is_loading() || self.is_reconnecting() {
                true => redialer.attempt_loaded(connector, purpose).await,
                false => redialer.attempt(connector.connect(purpose)).await,
            };
            let error = match connected {
                Ok(raw) => {
                    self.check_open()?;
                    return Ok((raw, attempt.elapsed()));
                }
                Err(error) => error,
            };
            // A server that refuses the login is there: waiting does not change its mind.
            if error.refuses_login() {
                return Err(error.into());
            }
            let until = if self.is_reconnecting() {
                redialer.leave_to_another();
                end
            } else if begin.elapsed() < UNNOTICED_LOSS && !error.cause().is_final() {
                // The shared connections may not have noticed yet that the server is gone.
                Some(Instant::now() + UNNOTICED_LOSS)
            } else if redialer.has_news() {
                end
            } else {
                return Err(error.into());
            };
            // Whether there was news or time has passed, it is time for the next attempt.
            let pause = redialer.pause(|| false);
            match until.into_iter().chain(end).min() {
                Some(until) => drop(timeout_at(until, pause).await),
                None => pause.await,
            }
            if end.is_some_and(|end| end <= Instant::now()) {
                return Err(error.into());
            }
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
        let liveness = Arc::new(Liveness::default());
        let bulk = Bulk::default();
        let inner = Inner { multiplexers, turn, connector, pool, bulk, events, runtime, liveness };
        Self { inner: Arc::new(inner) }
    }
}

/// How long a lost connection may take to be noticed, while another already finds the server gone.
const UNNOTICED_LOSS: Duration = Duration::from_secs(1);
