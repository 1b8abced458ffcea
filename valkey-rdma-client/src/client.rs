//! [`Client`]: the handle that tasks share.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use valkey_rdma_transport::{Monitor, Stats};

use crate::command::{Command, Kind};
use crate::connect;
use crate::driver::{Driver, QUEUE, Request};
use crate::endpoint::Endpoint;
use crate::error::{Error, LostCause, LostConnection, RefusedCommand};
use crate::in_flight::Reply;
use crate::info::{ConnectionInfo, Counters, Tally};
use crate::pipeline::Pipeline;
use crate::value::Value;

/// A connection that any number of tasks share. Cloning is cheap; every clone is the same connection.
///
/// Commands of different tasks leave together when they wait at the same time, and every task gets its own replies.
/// The server answers in order, so a slow command delays all that come after it on this connection: give blocking
/// commands (BLPOP, XREAD BLOCK, WAIT) a client of their own.
///
/// # State that tasks share
/// SELECT and AUTH are sent like any command and then hold for every task; better put them in the URL.
/// Commands that would break the connection for the others are refused ([`Error::Refused`]): subscriptions, MONITOR,
/// CLIENT REPLY, HELLO with arguments, QUIT, RESET, WATCH, SYNC, and MULTI outside a [`pipeline`](Self::pipeline) that
/// also ends it.
///
/// # End
/// Dropping the last clone ends the connection at once; [`close`](Self::close) first waits for what is under way.
/// A lost connection stays lost: every later call fails, and a new client has to be connected.
#[derive(Clone)]
pub struct Client {
    requests: mpsc::Sender<Request>,
    shared: Arc<Shared>,
}

/// What clients and driver both know.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) peer: Arc<str>,
    pub(crate) info: ConnectionInfo,
    pub(crate) tally: Tally,
    /// Looks at the transport's counters, where the transport is ours.
    monitor: Option<Monitor>,
    /// Whether `close` was called: requests are turned away although the connection still lives.
    pub(crate) closing: AtomicBool,
    /// What ended the connection.
    cause: OnceLock<Arc<LostCause>>,
}

impl Shared {
    pub(crate) fn new(monitor: Option<Monitor>, peer: Arc<str>, info: ConnectionInfo) -> Self {
        Self {
            peer,
            info,
            tally: Tally::default(),
            monitor,
            closing: AtomicBool::new(false),
            cause: OnceLock::new(),
        }
    }

    /// Notes the end of the connection. The first cause stands.
    pub(crate) fn end(&self, cause: LostCause) -> Arc<LostCause> {
        self.cause.get_or_init(|| Arc::new(cause)).clone()
    }

    pub(crate) fn lost(&self, cause: &Arc<LostCause>, may_have_run: bool) -> Error {
        LostConnection { peer: self.peer.clone(), cause: cause.clone(), may_have_run }.into()
    }
}

impl Client {
    /// Connects to a URL or an [`Endpoint`]: resolves the name, tries its addresses in turn, logs in and selects the
    /// database, all within the endpoint's timeout. Must run inside a tokio runtime, which then drives the connection.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if the URL makes no sense; [`Error::Connect`] otherwise, with the step that failed.
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up and closes what was opened.
    pub async fn connect(endpoint: impl TryInto<Endpoint, Error: Into<Error>>) -> Result<Self, Error> {
        connect::connect(&endpoint.try_into().map_err(Into::into)?).await
    }

    /// Logs in over a stream that is connected already: a Unix socket, TLS, a test double. Of the endpoint, only
    /// login, database, protocol and timeout count, and its host and port in messages.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream.
    pub async fn over<S>(stream: S, endpoint: &Endpoint) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        connect::over(stream, endpoint).await
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
    /// [`Error::Server`] if the reply is an error, [`Error::Lost`] if none came, [`Error::Refused`] if the command
    /// cannot be shared or has no name.
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
        if let Some(refusal) = command.refusal() {
            return Err(refusal.into());
        }
        if command.kind() == Kind::Multi {
            return Err(RefusedCommand { command: command.name(), reason: LONE_MULTI }.into());
        }
        let (sender, reply) = oneshot::channel();
        self.send(Request::Command(command, sender)).await?;
        Ok(self.receive(reply).await??)
    }

    /// Begins a pipeline: commands that leave together and stay together.
    pub fn pipeline(&self) -> Pipeline {
        Pipeline::new(self.clone())
    }

    /// What this connection runs on.
    #[must_use]
    pub fn info(&self) -> &ConnectionInfo {
        &self.shared.info
    }

    /// What the multiplexer has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.tally.read()
    }

    /// What the transport has done so far: work requests, doorbells, windows, bytes. None on TCP.
    #[must_use]
    pub fn stats(&self) -> Option<Stats> {
        self.shared.monitor.as_ref().map(Monitor::stats)
    }

    /// Whether the connection has ended, for whatever reason.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }

    /// Ends the connection for all clones, after the replies to everything sent so far. Returns when it is done, at
    /// once if the connection had ended before. A server that never answers makes this wait forever: put a
    /// timeout around it and drop the clients.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the closing.
    pub async fn close(&self) {
        let (done, ended) = oneshot::channel();
        if self.requests.send(Request::Close(done)).await.is_ok() {
            // Never sent to: dropped at the end.
            drop(ended.await);
        }
    }

    pub(crate) async fn run_pipeline(&self, commands: Vec<Command>) -> Result<Vec<Reply>, Error> {
        let (sender, replies) = oneshot::channel();
        self.send(Request::Pipeline(commands, sender)).await?;
        self.receive(replies).await
    }

    async fn send(&self, request: Request) -> Result<(), Error> {
        self.requests.send(request).await.map_err(|_| self.dropped(false))
    }

    async fn receive<T>(&self, answer: oneshot::Receiver<Result<T, Error>>) -> Result<T, Error> {
        answer.await.unwrap_or_else(|_| Err(self.dropped(true)))
    }

    /// The error for a request that the driver did not take, or dropped without a word. Once it has ended in good
    /// order, with a cause, whatever it had taken is answered.
    fn dropped(&self, handed_over: bool) -> Error {
        match self.shared.cause.get() {
            Some(cause) => self.shared.lost(cause, false),
            None if !handed_over && self.shared.closing.load(Ordering::Relaxed) => {
                self.shared.lost(&Arc::new(LostCause::Closed), false)
            }
            None => self.shared.lost(&Arc::new(LostCause::Stopped), handed_over),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("info", &self.shared.info).field("closed", &self.is_closed()).finish()
    }
}

const LONE_MULTI: &str =
    "commands of other tasks would get into the transaction; send MULTI to EXEC in one pipeline";

/// A client and the driver it talks to, which is not running yet, and a way to queue the first requests.
pub(crate) struct Unstarted<S> {
    pub(crate) client: Client,
    pub(crate) driver: Driver<S>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Unstarted<S> {
    pub(crate) fn new(stream: S, monitor: Option<Monitor>, peer: Arc<str>, info: ConnectionInfo) -> Self {
        let (sender, requests) = mpsc::channel(QUEUE);
        let protocol = info.protocol;
        let shared = Arc::new(Shared::new(monitor, peer, info));
        let driver = Driver::new(stream, protocol, requests, shared.clone());
        Self { client: Client { requests: sender, shared }, driver }
    }

    /// Queues a command, whatever it is. The first few always fit.
    pub(crate) fn queue(&self, command: Command) -> impl Future<Output = Result<Reply, Error>> + use<S> {
        let (sender, reply) = oneshot::channel();
        let queued = self.client.requests.try_send(Request::Command(command, sender));
        debug_assert!(queued.is_ok(), "the queue is longer than a handshake");
        let client = self.client.clone();
        async move { client.receive(reply).await }
    }
}
