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
use valkey_rdma_resp::{FromValue, Value};
use valkey_rdma_transport::Duplex;

use crate::config::Config;
use crate::connection::Connector;
use crate::connection::IdlePool;
use crate::endpoint::Endpoint;
use crate::error::{Error, LostCause, LostConnection};
use crate::events::{ConnectionEvents, EventHub, EventReporter};
use crate::multiplexer::{Deadline, PushHook};
use crate::multiplexer::{Multiplexer, ReconnectPolicy};
use crate::multiplexer::{Replies, ReplySink, Request, reply_channel};
use crate::resp::EncodedPipeline;
use crate::resp::{Command, IntoCommand};
use crate::resp::{Commands, Reply};
use crate::stats::{ConnectionInfo, ConnectionStatus, Counters, Purpose, State};

/// A connection shared by any number of tasks, or several connections. Cloning is cheap; every clone is the same
/// client.
///
/// Commands of different tasks that wait at the same time are sent together, and each task receives its own replies.
/// The server answers in order, so a slow command delays all later ones on its connection. Large values can have a
/// [connection of their own](Self::stream_reply); blocking commands (BLPOP, XREAD BLOCK, WAIT) [need
/// one](Self::blocking_command).
///
/// # State that tasks share
/// Commands that would change the connection for other tasks, or break it, are refused ([`Error::Refused`]), and the
/// error text names the alternative. These are SELECT, AUTH, HELLO with arguments, subscriptions, MONITOR, QUIT,
/// RESET, WATCH, READONLY, ASKING, replication commands, SCRIPT DEBUG, CLIENT TRACKING, REPLY, SETNAME, NO-EVICT and
/// similar, blocking commands, and MULTI outside a [`pipeline`](Self::pipeline) that also ends it.
///
/// # Lost connections
/// The client reconnects automatically, with growing waits ([`Config::reconnect`]). What happens to commands in flight
/// depends on the command:
/// - a command that cannot have run, or is marked [`idempotent`](Command::idempotent), is sent again on the next
///   connection, up to [`Config::retries`] times;
/// - any other command fails with [`Error::Lost`], and [`Error::fate`] reports that it may have run.
///
/// New commands wait for the next connection, at most for [`Config::offline_timeout`]. Then they fail with the reason
/// why the client is not connected.
///
/// # End
/// Dropping the last clone closes the connections; [`close`](Self::close) first waits for replies to commands already
/// sent. Over RDMA, outstanding replies are read in the background before the disconnect, for at most 60 s, because
/// Valkey 8.1.1 crashes if a client disconnects while a reply waits for its receive window.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    multiplexers: Vec<Multiplexer>,
    /// The next connection in turn, if there are several.
    turn: AtomicUsize,
    connector: Arc<Connector>,
    pool: IdlePool,
    events: Arc<EventHub>,
}

impl Client {
    /// Connects to a URL or an [`Endpoint`] with the default [`Config`]: resolves the name, tries its addresses in
    /// order, logs in and selects the database, all within the endpoint's timeout. Must run inside a tokio runtime,
    /// which then drives the connection.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if the URL is invalid; otherwise [`Error::Connect`] with the step that failed.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the attempt and closes what was opened.
    pub async fn connect(endpoint: impl TryInto<Endpoint, Error: Into<Error>>) -> Result<Self, Error> {
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
    pub async fn connect_with(
        endpoint: impl TryInto<Endpoint, Error: Into<Error>>,
        config: &Config,
    ) -> Result<Self, Error> {
        let endpoint = endpoint.try_into().map_err(Into::into)?;
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
        endpoint.check_direct()?;
        let dialer = Box::new(move || {
            let stream = dialer();
            Box::pin(async move { stream.await.map(|stream| Box::new(stream) as Box<dyn Duplex>) }) as _
        });
        Self::start(Connector::dialing(endpoint, config.clone(), dialer), None).await
    }

    /// Logs in over a stream that is already connected. The client cannot reconnect: once lost, the connection stays
    /// lost. Otherwise as [`connect_with_dialer`](Self::connect_with_dialer).
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
        let policy = config.reconnect.map(|backoff| ReconnectPolicy {
            connector: connector.clone(),
            backoff,
            offline_timeout: config.offline_timeout,
            retries: config.retries,
        });
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

    pub(crate) fn assemble(
        multiplexers: Vec<Multiplexer>,
        connector: Arc<Connector>,
        events: Arc<EventHub>,
    ) -> Self {
        let turn = AtomicUsize::new(0);
        let inner = Inner { multiplexers, turn, connector, pool: IdlePool::default(), events };
        Self { inner: Arc::new(inner) }
    }

    /// Sends a command and returns its reply.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
    /// use valkey_rdma_client::cmd;
    ///
    /// client.command(["SET", "greeting", "hello"]).await?;
    /// client.command(cmd!["SET", "greeting", b"hello", "EX", 60]).await?; // arguments of different types
    /// let greeting = client.command(["GET", "greeting"]).await?;
    /// assert_eq!(greeting.as_bytes(), Some(&b"hello"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Server`] if the reply is an error, [`Error::Lost`] or [`Error::TimedOut`] if no reply came,
    /// [`Error::Connect`] if there was no connection for too long, [`Error::Refused`] if the command cannot be sent on
    /// a shared connection or has no name.
    ///
    /// # Cancel safety
    /// Dropping the future discards the reply and never shifts the replies of others. The command may or may not run.
    pub async fn command(&self, command: impl IntoCommand) -> Result<Value, Error> {
        self.execute(command.into_command()).await
    }

    /// Sends a command and converts its reply to a Rust type: see [`FromValue`] for what converts. `()` accepts every reply
    /// that is not an error.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
    /// use valkey_rdma_client::cmd;
    ///
    /// let visits: i64 = client.query(cmd!["INCRBY", "visits", 5]).await?;
    /// let name = client.query::<Option<String>>(["GET", "name"]).await?;
    /// let () = client.query(["DEL", "name"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same errors as [`command`](Self::command), and [`Error::Unexpected`] if the reply does not convert.
    ///
    /// # Cancel safety
    /// As [`command`](Self::command).
    pub async fn query<T: FromValue>(&self, command: impl IntoCommand) -> Result<T, Error> {
        Ok(self.execute(command.into_command()).await?.convert()?)
    }

    /// Does what [`command`](Self::command) does: the method that [`Execute`](crate::Execute) has too.
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
        let (sender, reply) = reply_channel();
        let limit = self.limit(&command);
        let multiplexer = self.multiplexer();
        let request = Request::new(Commands::One(command), ReplySink::One(sender), limit);
        if let Some(request) = multiplexer.try_send(request)? {
            multiplexer.send_when_room(request).await?;
        }
        Ok(multiplexer.receive(reply).await??)
    }

    /// Sends a command, which may wait no longer than until `deadline`. If it fails it comes back, where it still exists,
    /// so that it can be sent to another server.
    pub(crate) async fn attempt(
        &self,
        command: Command,
        deadline: Option<Deadline>,
    ) -> Result<Value, FailedAttempt> {
        let (sender, mut reply) = reply_channel();
        let multiplexer = self.multiplexer();
        let request = Request::due(Commands::One(command), ReplySink::One(sender.want_back()), deadline);
        let queued = match multiplexer.try_send(request) {
            Ok(None) => Ok(()),
            Ok(Some(request)) => multiplexer.send_when_room(request).await,
            Err(error) => Err(error),
        };
        let outcome = match queued {
            Ok(()) => multiplexer.receive(&mut reply).await,
            Err(error) => {
                // Takes the command back; it is there already.
                drop((&mut reply).await);
                Err(error)
            }
        };
        match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(FailedAttempt { error: error.into(), command: reply.command }),
            Err(error) => Err(FailedAttempt { error, command: reply.command }),
        }
    }

    /// Sends a command right behind ASKING, as the reply ASK demands.
    pub(crate) async fn attempt_asking(
        &self,
        command: &Command,
        deadline: Option<Deadline>,
    ) -> Result<Value, Error> {
        let commands: EncodedPipeline = [&Command::new("ASKING"), command].into_iter().collect();
        let replies = Replies::Kept(Vec::with_capacity(2));
        let mut replies = self.run_until(commands, replies, deadline).await?;
        // A server that refuses ASKING refuses the command too.
        Ok(replies.pop().unwrap_or(Ok(Value::Nil))?)
    }

    /// Describes the (first) connection. After a reconnect the description may differ.
    #[must_use]
    pub fn info(&self) -> Arc<ConnectionInfo> {
        self.first().state.info()
    }

    /// True if at least one shared connection is up. Otherwise commands wait for one, at most for
    /// [`Config::offline_timeout`].
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.inner.multiplexers.iter().any(|multiplexer| multiplexer.state.state() == State::Connected)
    }

    /// The multiplexer's counters, summed over all connections.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for multiplexer in &self.inner.multiplexers {
            sum.add(&multiplexer.state.counters.read());
        }
        sum
    }

    /// Each connection: shared ones first, then dedicated, subscriber, idle and draining ones. With its state, a description,
    /// and the counters of client and transport. The `Display` form resembles the reply to INFO:
    ///
    /// ```no_run
    /// # fn example(client: valkey_rdma_client::Client) {
    /// for connection in client.connections() {
    ///     println!("{connection}");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        let shared = self.inner.multiplexers.iter().map(|multiplexer| multiplexer.state.status());
        shared.chain(self.connector().registry.not_shared()).collect()
    }

    /// What happens to the shared connections from now on: lost, restored, over TCP instead of RDMA, closed. The first events
    /// describe the connections that are up.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) {
    /// let mut events = client.events();
    /// tokio::spawn(async move {
    ///     while let Some(event) = events.next().await {
    ///         println!("{event}");
    ///     }
    /// });
    /// # }
    /// ```
    #[must_use]
    pub fn events(&self) -> ConnectionEvents {
        self.inner.events.listen(|| {
            let connections = self.inner.multiplexers.iter().map(|multiplexer| &multiplexer.state);
            let up = connections.enumerate().filter(|(_, state)| state.state() == State::Connected);
            up.map(|(connection, state)| (connection, state.info())).collect()
        })
    }

    /// True if the client has ended: closed, or lost with reconnecting disabled.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.multiplexers.iter().all(Multiplexer::is_closed)
    }

    /// Closes all connections of all clones, after the replies to every command sent so far. New commands, dedicated
    /// connections and subscribers are refused from now on; existing ones stay open. Returns when all connections have
    /// ended, including those of [readers dropped early](crate::ValueReader). Returns at once if already closed.
    ///
    /// After [`Config::close_timeout`], connections end even without replies, and commands without a reply fail with
    /// [`Error::Lost`].
    ///
    /// # Cancel safety
    /// Once polled, dropping the future does not stop the closing.
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
            // The rest is drained in the background.
            Some(deadline) => drop(timeout_at(deadline, parted).await),
        }
    }

    /// The error for a reply that does not come.
    pub(crate) fn lost(&self) -> LostConnection {
        let cause = Arc::new(LostCause::Stopped);
        LostConnection { peer: self.first().state.peer.clone(), cause, may_have_run: true }
    }

    /// Ends the connections because the server is no longer the one to talk to.
    pub(crate) fn give_up(&self) {
        self.inner.multiplexers.iter().for_each(Multiplexer::give_up);
    }

    /// True if both are the same client.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Refuses new connections after [`close`](Self::close).
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

    /// Sends commands together and waits for the last reply. Returns what `replies` keeps.
    pub(crate) async fn run_together(
        &self,
        commands: EncodedPipeline,
        replies: Replies,
    ) -> Result<Vec<Reply>, Error> {
        let limit = commands.limit().or(self.config().command_timeout);
        self.run_until(commands, replies, limit.and_then(Deadline::after)).await
    }

    /// As [`run_together`](Self::run_together), until `deadline`.
    pub(crate) async fn run_until(
        &self,
        commands: EncodedPipeline,
        replies: Replies,
        deadline: Option<Deadline>,
    ) -> Result<Vec<Reply>, Error> {
        let (sender, answer) = oneshot::channel();
        let multiplexer = self.multiplexer();
        let request = Request::due(Commands::Many(commands), ReplySink::Many(sender, replies), deadline);
        if let Some(request) = multiplexer.try_send(request)? {
            multiplexer.send_when_room(request).await?;
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

    /// How many requests each connection's queue holds.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> Vec<usize> {
        self.inner.multiplexers.iter().map(Multiplexer::queued).collect()
    }

    fn first(&self) -> &Multiplexer {
        &self.inner.multiplexers[0]
    }

    /// The connection for the next request: each in turn, preferring connected ones.
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

/// Why a command failed on a connection, and the command.
pub(crate) struct FailedAttempt {
    pub(crate) error: Error,
    /// `None` if its time was up, or the runtime shut down.
    pub(crate) command: Option<Box<Command>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("info", &self.info()).field("connected", &self.is_connected()).finish()
    }
}
