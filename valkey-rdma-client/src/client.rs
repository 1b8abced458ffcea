//! [`Client`]: the handle that tasks share.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use valkey_rdma_resp::Value;
use valkey_rdma_transport::Stats;

use crate::config::Config;
use crate::connection::Connector;
use crate::connection::IdlePool;
use crate::connection::Io;
use crate::endpoint::{Endpoint, Transport};
use crate::error::{Error, LostCause};
use crate::multiplexer::PushHook;
use crate::multiplexer::{Multiplexer, ReconnectPolicy};
use crate::multiplexer::{Replies, ReplySink, Request};
use crate::resp::Command;
use crate::resp::EncodedPipeline;
use crate::resp::{Commands, Reply};
use crate::stats::{ConnectionInfo, ConnectionStatus, Counters, Purpose, State};

/// A connection that any number of tasks share, or a few of them. Cloning is cheap; every clone is the same client.
///
/// Commands of different tasks leave together when they wait at the same time, and every task gets its own replies.
/// The server answers in order, so a slow command delays all that come after it on its connection: large values can
/// have a [connection of their own](Self::stream_reply), and commands that block (BLPOP, XREAD BLOCK, WAIT) must have
/// [one](Self::blocking_command).
///
/// # State that tasks share
/// Commands that would change the connection for the others, or break it, are refused ([`Error::Refused`]), and the
/// text says what to use instead: SELECT, AUTH, HELLO with arguments, subscriptions, MONITOR, QUIT, RESET, WATCH,
/// READONLY, ASKING, what belongs to replication, SCRIPT DEBUG, CLIENT TRACKING, REPLY, SETNAME, NO-EVICT and others of
/// that kind, commands that block, and MULTI outside a [`pipeline`](Self::pipeline) that also ends it.
///
/// # Lost connections
/// The client connects again by itself, with growing waits ([`Config::reconnect`]). What was under way is told apart:
/// - a command that cannot have run is sent on the next connection, and so is one marked
///   [`idempotent`](Command::idempotent), a few times ([`Config::retries`]);
/// - any other fails with [`Error::Lost`], and [`Error::fate`] says that it may have run.
///
/// New commands wait for the next connection, for [`Config::offline_timeout`] at most; then they fail with the reason why
/// there is none.
///
/// # End
/// Dropping the last clone ends the connection; [`close`](Self::close) first waits for what is under way. Over RDMA,
/// replies that are due although nobody waits for them any more are first read in the background, for 60 s at most: Valkey
/// 8.1.1 dies when a client disconnects while a reply waits for its window.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    multiplexers: Vec<Multiplexer>,
    /// Whose turn it is, if there are several.
    turn: AtomicUsize,
    connector: Arc<Connector>,
    pool: IdlePool,
}

impl Client {
    /// Connects to a URL or an [`Endpoint`], with the default [`Config`]: resolves the name, tries its addresses in
    /// turn, logs in and selects the database, all within the endpoint's timeout. Must run inside a tokio runtime,
    /// which then drives the connection.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if the URL makes no sense; [`Error::Connect`] otherwise, with the step that failed.
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up and closes what was opened.
    pub async fn connect(endpoint: impl TryInto<Endpoint, Error: Into<Error>>) -> Result<Self, Error> {
        Self::connect_with(endpoint, &Config::default()).await
    }

    /// As [`connect`](Self::connect), with another [`Config`].
    ///
    /// # Errors
    /// As [`connect`](Self::connect). With several connections, the first failure is told, and none is kept.
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    pub async fn connect_with(
        endpoint: impl TryInto<Endpoint, Error: Into<Error>>,
        config: &Config,
    ) -> Result<Self, Error> {
        let endpoint = endpoint.try_into().map_err(Into::into)?;
        endpoint.check()?;
        Self::start(Connector::new(endpoint, config.clone()), None).await
    }

    /// As [`connect_with`](Self::connect_with), over streams that `dialer` makes: Unix sockets, TLS, a tunnel. It is
    /// called for every connection, those after a lost one included. Of the endpoint, only login, database, protocol
    /// and timeout count, and its host and port in messages. A stream is read on its connection's task, and written there or
    /// on the thread of a caller that has the connection for itself, always within the runtime of this call.
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
        endpoint: impl TryInto<Endpoint, Error: Into<Error>>,
        config: &Config,
        dialer: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
    {
        let endpoint = endpoint.try_into().map_err(Into::into)?;
        endpoint.check()?;
        let dialer = Box::new(move || {
            let stream = dialer();
            Box::pin(async move { stream.await.map(|stream| Box::new(stream) as Box<dyn Io>) }) as _
        });
        Self::start(Connector::dialing(endpoint, config.clone(), dialer), None).await
    }

    /// Logs in over a stream that is connected already. It cannot be made again: once lost, it stays lost.
    /// The rest is as for [`connect_with_dialer`](Self::connect_with_dialer).
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
        let connector = Arc::new(Connector::once(endpoint.clone(), Config::default()));
        let raw = connector.log_in(Box::new(stream)).await?;
        let multiplexer = Multiplexer::start(raw, endpoint.authority().into(), None, None);
        Ok(Self::assemble(vec![multiplexer], connector))
    }

    /// Makes all connections, one after the other: a server has one thread to accept them, and memory to pin.
    pub(crate) async fn start(connector: Connector, pushes: Option<PushHook>) -> Result<Self, Error> {
        let connector = Arc::new(connector);
        let config = &connector.config;
        let policy = config.reconnect.map(|backoff| ReconnectPolicy {
            connector: connector.clone(),
            backoff,
            offline_timeout: config.offline_timeout,
            retries: config.retries,
        });
        let peer: Arc<str> = connector.endpoint.authority().into();
        let mut multiplexers = Vec::with_capacity(config.connections);
        for _ in 0..config.connections {
            let raw = connector.connect(Purpose::Shared).await?;
            multiplexers.push(Multiplexer::start(raw, peer.clone(), policy.clone(), pushes.clone()));
        }
        Ok(Self::assemble(multiplexers, connector))
    }

    pub(crate) fn assemble(multiplexers: Vec<Multiplexer>, connector: Arc<Connector>) -> Self {
        let inner = Inner { multiplexers, turn: AtomicUsize::new(0), connector, pool: IdlePool::default() };
        Self { inner: Arc::new(inner) }
    }

    /// Sends a command, given as its name and arguments, and waits for its reply.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
    /// client.command(["SET", "greeting", "hello"]).await?;
    /// let greeting = client.command([&b"GET"[..], b"greeting"]).await?;
    /// assert_eq!(greeting.as_bytes(), Some(&b"hello"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Server`] if the reply is an error, [`Error::Lost`] or [`Error::TimedOut`] if none came,
    /// [`Error::Connect`] if there was no connection for too long, [`Error::Refused`] if the command cannot be shared
    /// or has no name.
    ///
    /// # Cancel safety
    /// Dropping the future drops the reply, never shifts those of others. The command may or may not run.
    pub async fn command(&self, args: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<Value, Error> {
        self.execute(Command::from_args(args)).await
    }

    /// As [`command`](Self::command), for a [`Command`] built before.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    ///
    /// # Cancel safety
    /// As [`command`](Self::command).
    pub async fn execute(&self, command: Command) -> Result<Value, Error> {
        if let Some(refusal) = command.shared_refusal() {
            return Err(refusal.into());
        }
        let (sender, reply) = oneshot::channel();
        let limit = self.limit(&command);
        let multiplexer = self.multiplexer();
        if let Some(request) =
            multiplexer.send(Request::new(Commands::One(command), ReplySink::One(sender), limit))?
        {
            multiplexer.send_late(request).await?;
        }
        Ok(multiplexer.receive(reply).await??)
    }

    /// What the (first) connection runs on. After a reconnect it may be another.
    #[must_use]
    pub fn info(&self) -> Arc<ConnectionInfo> {
        self.first().state.info()
    }

    /// What carries the bytes of the (first) connection.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.info().transport
    }

    /// Whether there is a connection: the best that one of them can say.
    #[must_use]
    pub fn state(&self) -> State {
        let mut states = self.inner.multiplexers.iter().map(|multiplexer| multiplexer.state.state());
        let first = states.next().unwrap_or(State::Closed);
        states.fold(first, |best, state| match (best, state) {
            (State::Connected, _) | (_, State::Connected) => State::Connected,
            (State::Reconnecting, _) | (_, State::Reconnecting) => State::Reconnecting,
            _ => State::Closed,
        })
    }

    /// What the multiplexer has done so far, on all connections.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for multiplexer in &self.inner.multiplexers {
            sum.add(&multiplexer.state.counters.read());
        }
        sum
    }

    /// What the transport has done so far on the (first) connection: work requests, doorbells, windows, bytes. None on
    /// TCP.
    #[must_use]
    pub fn stats(&self) -> Option<Stats> {
        self.first().state.transport_stats()
    }

    /// All that is known of each connection: the shared ones first, then those of one's own, of subscribers, the idle and
    /// the parting. Printed, it reads like the reply to INFO:
    ///
    /// ```no_run
    /// # fn example(client: valkey_rdma_client::Client) {
    /// for connection in client.status() {
    ///     println!("{connection}");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn status(&self) -> Vec<ConnectionStatus> {
        let shared = self.inner.multiplexers.iter().map(|multiplexer| multiplexer.state.status());
        shared.chain(self.connector().registry.not_shared()).collect()
    }

    /// Whether the client is at its end: closed, or lost without leave to reconnect.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.multiplexers.iter().all(Multiplexer::is_closed)
    }

    /// Ends all connections for all clones, after the replies to everything sent so far. New commands are refused from
    /// now on, and so are new connections of one's own and subscribers; those there are live on. Returns when all
    /// connections have ended, including those of [values given up](crate::ValueReader) before; at once if already closed.
    ///
    /// A server that does not answer cannot hold this up: after [`Config::close_timeout`] the connections are ended, and
    /// commands without a reply fail with [`Error::Lost`].
    ///
    /// # Cancel safety
    /// Dropping the future, once polled, does not stop the closing.
    pub async fn close(&self) {
        self.inner.pool.close();
        let deadline = self.config().close_timeout.and_then(|limit| Instant::now().checked_add(limit));
        let ends: Vec<_> =
            self.inner.multiplexers.iter().map(|multiplexer| multiplexer.close(deadline)).collect();
        for end in ends {
            // Never sent to: dropped at the end.
            drop(end.await);
        }
        let parted = self.connector().registry.drained();
        match deadline {
            None => parted.await,
            // What is left is read on in the background.
            Some(deadline) => drop(timeout_at(deadline, parted).await),
        }
    }

    /// Refuses what would need a new connection after [`close`](Self::close).
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.inner.pool.is_closed() {
            return Err(self.first().state.lost(&Arc::new(LostCause::Closed), false));
        }
        Ok(())
    }

    /// How long a command may take.
    pub(crate) fn limit(&self, command: &Command) -> Option<Duration> {
        command.limit().or(self.config().command_timeout)
    }

    /// How long commands sent together may take.
    pub(crate) fn limit_of(&self, commands: &[Command]) -> Option<Duration> {
        commands.iter().filter_map(Command::limit).max().or(self.config().command_timeout)
    }

    /// Sends commands together and waits for the last reply: returns what `replies` keeps.
    pub(crate) async fn run_together(
        &self,
        commands: EncodedPipeline,
        replies: Replies,
    ) -> Result<Vec<Reply>, Error> {
        let limit = commands.limit().or(self.config().command_timeout);
        let (sender, answer) = oneshot::channel();
        let multiplexer = self.multiplexer();
        let request = Request::new(Commands::Many(commands), ReplySink::Many(sender, replies), limit);
        if let Some(request) = multiplexer.send(request)? {
            multiplexer.send_late(request).await?;
        }
        multiplexer.receive(answer).await
    }

    pub(crate) fn connector(&self) -> &Arc<Connector> {
        &self.inner.connector
    }

    pub(crate) fn config(&self) -> &Config {
        &self.inner.connector.config
    }

    pub(crate) fn pool(&self) -> &IdlePool {
        &self.inner.pool
    }

    /// How many requests have a place in each connection's queue.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> Vec<usize> {
        self.inner.multiplexers.iter().map(Multiplexer::queued).collect()
    }

    fn first(&self) -> &Multiplexer {
        &self.inner.multiplexers[0]
    }

    /// The connection for the next request: each in turn, but one that is there before one that is not.
    fn multiplexer(&self) -> &Multiplexer {
        let multiplexers = &self.inner.multiplexers;
        if let [only] = &multiplexers[..] {
            return only;
        }
        let turn = self.inner.turn.fetch_add(1, Ordering::Relaxed);
        let in_turn =
            (0..multiplexers.len()).map(|step| &multiplexers[turn.wrapping_add(step) % multiplexers.len()]);
        in_turn
            .clone()
            .find(|multiplexer| multiplexer.state.is_online())
            .unwrap_or(&multiplexers[turn % multiplexers.len()])
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("info", &self.info()).field("state", &self.state()).finish()
    }
}
