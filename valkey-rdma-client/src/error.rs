//! Errors in layers: a URL, a connect, a lost connection, a refused command, the server's error reply.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use valkey_rdma_resp::{RespError, ServerError, ServerErrorKind, UnexpectedReply};
use valkey_rdma_transport::TransportError;

use crate::command::RefusedCommand;
use crate::endpoint::EndpointError;

mod advice;
mod cluster;
mod connect;
mod failed_command;
mod password;

use self::advice::advice;
pub use self::cluster::ClusterError;
pub use self::connect::{ConnectCause, ConnectError};
pub use self::failed_command::FailedCommand;
pub use self::password::PasswordError;

/// Why a call of this crate failed.
///
/// `Clone`, because one lost connection ends every request that waits on it; causes are shared.
///
/// # Text
/// `{error}` says what failed and what to do. Errors of the system that this text lacks are the
/// [`source`](std::error::Error::source), which anyhow and eyre print after it. `{error:#}` is everything in one line, for logs.
///
/// ```
/// # async fn example() {
/// # use std::error::Error as _;
/// use valkey_rdma_client::Client;
///
/// let error = Client::connect("valkey://127.0.0.1:1").await.expect_err("nothing listens there");
/// let text = "cannot connect to 127.0.0.1:1 over tcp: connection refused; is a server listening on this port?";
/// assert!(error.to_string() == text && error.source().is_some());
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(example());
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL or [`Endpoint`](crate::Endpoint) is invalid. Nothing was tried.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// No usable connection could be made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server answered with an error reply. The connection stays usable.
    // Neither transparent nor the source: its text is all there is of it.
    #[error("{}{}", .0, advice(.0))]
    Server(ServerError),
    /// The connection ended before the reply arrived.
    #[error(transparent)]
    Lost(#[from] LostConnection),
    /// The command timed out. A shared connection is kept, and a late reply is discarded. A [`Dedicated`](crate::Dedicated) connection is closed.
    #[error(transparent)]
    TimedOut(#[from] TimedOut),
    /// A transaction was not executed. None of its commands ran, unless the text says otherwise.
    #[error(transparent)]
    Aborted(#[from] AbortedTransaction),
    /// The reply has another type than the one requested. The command ran. The text names the command.
    #[error(transparent)]
    Unexpected(#[from] UnexpectedReply),
    /// The command cannot be sent on a shared connection. It was not sent.
    #[error(transparent)]
    Refused(#[from] RefusedCommand),
    /// A cluster client found no node for the command, or for a part of it.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A command of a pipeline or a transaction whose replies were converted together failed. Boxed, so that other errors stay small.
    #[error(transparent)]
    InPipeline(Box<FailedCommand>),
}

impl Error {
    /// Whether the command, or the pipeline it was part of, ran: what matters before a retry.
    #[must_use]
    pub fn fate(&self) -> Fate {
        match self {
            Self::Server(_) | Self::Unexpected(_) | Self::Aborted(_) => Fate::Answered,
            Self::Lost(LostConnection { may_have_run: true, .. })
            | Self::TimedOut(TimedOut { may_have_run: true, .. }) => Fate::MayHaveRun,
            // Other parts ran, or may have.
            Self::Cluster(ClusterError::Partial { first, .. }) => match first.fate() {
                Fate::Answered => Fate::Answered,
                Fate::NotSent | Fate::MayHaveRun => Fate::MayHaveRun,
            },
            Self::InPipeline(failed) => failed.error.fate(),
            Self::Endpoint(_)
            | Self::Connect(_)
            | Self::Refused(_)
            | Self::Cluster(_)
            | Self::Lost(_)
            | Self::TimedOut(_) => Fate::NotSent,
        }
    }

    /// True if the server may have executed the command, or some command of the pipeline: any fate but
    /// [`Fate::NotSent`], except a transaction that the server refused.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Aborted(aborted) => matches!(aborted, AbortedTransaction::NotBegun { .. }),
            Self::InPipeline(failed) => failed.error.may_have_run(),
            _ => self.fate() != Fate::NotSent,
        }
    }

    /// True if a server that answers is not a node of the cluster.
    pub(crate) fn is_another_cluster(&self) -> bool {
        match self {
            Self::Cluster(ClusterError::AnotherCluster { .. }) => true,
            Self::Connect(error) => error.cause.is_another_cluster(),
            _ => false,
        }
    }

    /// True if the server reads its data, and refuses the command or the login until it has.
    pub(crate) fn is_loading(&self) -> bool {
        self.server().is_some_and(|error| error.kind() == ServerErrorKind::Loading)
    }

    /// The server's error, if there is one: an error reply, also to one command of a pipeline, or a refused login.
    #[must_use]
    pub fn server(&self) -> Option<&ServerError> {
        match self {
            Self::Server(error) => Some(error),
            Self::Connect(error) => error.cause.rejected(),
            Self::InPipeline(failed) => failed.error.server(),
            _ => None,
        }
    }
}

/// Whether a failed command ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The command was not sent completely, or there was no connection. It did not run, so a retry cannot run it
    /// twice.
    NotSent,
    /// The command was sent, or was about to be, and no reply came. Whether it ran is unknown.
    MayHaveRun,
    /// The server answered, with an error or with an unexpected reply.
    Answered,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSent => "the command was not sent",
            Self::MayHaveRun => "the command may have run",
            Self::Answered => "the command was answered",
        })
    }
}

impl From<ServerError> for Error {
    fn from(error: ServerError) -> Self {
        Self::Server(error)
    }
}

impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// A connection that ended while a call needed it.
#[derive(Clone, Debug)]
pub struct LostConnection {
    /// `host:port`, or what the endpoint says instead.
    pub(crate) peer: Arc<str>,
    pub(crate) cause: Arc<LostCause>,
    pub(crate) may_have_run: bool,
    /// False if no command waited, so that there is nothing to say of its fate.
    pub(crate) has_command: bool,
    /// Why there was no other connection, for a command that waited for one.
    pub(crate) not_restored: Option<Arc<ConnectError>>,
}

impl LostConnection {
    pub(crate) fn new(peer: Arc<str>, cause: Arc<LostCause>, may_have_run: bool) -> Self {
        Self { peer, cause, may_have_run, has_command: true, not_restored: None }
    }

    /// For a call that waited for events, and not for the reply to a command.
    pub(crate) fn without_command(peer: Arc<str>, cause: Arc<LostCause>) -> Self {
        Self { has_command: false, ..Self::new(peer, cause, false) }
    }

    /// Why the connection ended; the same for every request that waited on it.
    #[must_use]
    pub fn cause(&self) -> &LostCause {
        &self.cause
    }
}

impl fmt::Display for LostConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fate = if self.may_have_run { Fate::MayHaveRun } else { Fate::NotSent };
        write!(f, "connection to {} lost", self.peer)?;
        match Reason(&self.cause) {
            reason if f.alternate() => write!(f, ": {reason:#}")?,
            reason => write!(f, ": {reason}")?,
        }
        match &self.not_restored {
            Some(why) if f.alternate() => write!(f, "; not restored: {}", Chain(&**why))?,
            Some(why) => write!(f, "; not restored: {why}")?,
            None => {}
        }
        if self.has_command { write!(f, "; {fate}") } else { Ok(()) }
    }
}

impl std::error::Error for LostConnection {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The cause itself is part of the text.
        self.cause.source()
    }
}

/// A command that timed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedOut {
    pub(crate) peer: Arc<str>,
    pub(crate) limit: Duration,
    pub(crate) may_have_run: bool,
}

impl TimedOut {
    /// The command's time limit.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fate = if self.may_have_run { Fate::MayHaveRun } else { Fate::NotSent };
        write!(f, "no reply from {} within {:?}; {fate}", self.peer, self.limit)
    }
}

impl std::error::Error for TimedOut {}

/// A transaction that was not executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AbortedTransaction {
    /// A watched key changed. Read it and try again.
    #[error("the transaction was not executed: a watched key changed")]
    Watched,
    /// The server refused one of its commands, and therefore all of them.
    #[error("the transaction was not executed: the server refused command {index}: {error}")]
    Refused {
        /// Which command, counted from 0.
        index: usize,
        /// Why.
        error: ServerError,
    },
    /// The server refused MULTI and ran the commands after it one by one, without a transaction.
    #[error("the server refused MULTI, and its commands ran without a transaction: {error}")]
    NotBegun {
        /// Why.
        error: ServerError,
    },
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LostCause {
    /// The peer closed its side.
    #[error("the peer closed it")]
    PeerClosed,
    /// Reading or writing failed.
    #[error(transparent)]
    Io(io::Error),
    /// The peer sent something other than RESP; later bytes cannot be trusted.
    #[error("the peer broke the protocol: {0}")]
    Protocol(RespError),
    /// The peer answered a command of the login, or of a direct transfer, with what that command does not return: its replies are not those to our commands. A
    /// server or something between sent a reply too many, or is none that speaks this protocol.
    #[error("the peer broke the protocol: {0}")]
    OutOfStep(UnexpectedReply),
    /// The Sentinels, or the nodes of the cluster, report another primary; or after READONLY, a new connection has reached one.
    #[error("its server is not the primary any more")]
    Moved,
    /// [`Client::close`](crate::Client::close) was called.
    #[error("it was closed by this program")]
    Closed,
    /// A call on a dedicated connection was dropped before its reply; what comes next on it is unknown.
    #[error("a call on it was dropped before its reply")]
    Cancelled,
    /// A call on a dedicated connection timed out; what comes next on it is unknown.
    #[error("a call on it got no reply within {limit:?}")]
    TimedOut {
        /// How long the call was allowed to take.
        limit: Duration,
    },
    /// Over TCP, the server left a PING without an answer, or could not be reached for one, while a call blocked on it or a [`Subscriber`](crate::Subscriber) waited: it is
    /// frozen, or runs one command for that long. Over RDMA too, of a node of a cluster, if another has taken its slots.
    #[error("its server did not answer PING within {limit:?}")]
    Silent {
        /// The client's [`keepalive_timeout`](crate::Config::keepalive_timeout), or the
        /// [`silence_limit`](crate::Config::silence_limit) of a node that was replaced.
        limit: Duration,
    },
    /// A subscriber was too slow, and its policy is to disconnect. [`Client::subscriber_with`](crate::Client::subscriber_with) sets the
    /// policy, and how many events may wait.
    #[error("the subscriber was too slow: take events sooner, or allow more to wait")]
    SlowConsumer,
    /// The connection task was dropped, for example because its runtime shut down.
    #[error("its task was stopped, has the runtime shut down?")]
    Stopped,
}

/// A cause behind the word "lost", which the transport's own text repeats. `{:#}`: with its sources.
pub(crate) struct Reason<'a>(pub(crate) &'a LostCause);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let LostCause::Io(error) = self.0
            && let Some(TransportError::Lost(reason)) = error.get_ref().and_then(|error| error.downcast_ref())
        {
            return write!(f, "{reason}");
        }
        if f.alternate() { write!(f, "{}", Chain(self.0)) } else { write!(f, "{}", self.0) }
    }
}

/// An error and its sources in one line.
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn std::error::Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
