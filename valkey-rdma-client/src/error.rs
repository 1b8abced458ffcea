//! What can go wrong, in layers: a URL, a connect, a lost connection, a command we refuse, a server's own error reply.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use valkey_rdma_resp::{ProtocolError, ServerError, UnexpectedReply};

use crate::endpoint::EndpointError;
use crate::resp::RefusedCommand;

mod connect;

pub use self::connect::{ConnectCause, ConnectError};

/// Why a call of this crate failed.
///
/// `Clone`, because one lost connection ends every request that waits on it; causes are shared.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL or the endpoint built in code makes no sense. Nothing was tried.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// No usable connection came about.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server answered with an error reply. The connection is fine.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The connection ended before the reply arrived.
    #[error(transparent)]
    Lost(#[from] LostConnection),
    /// The command's time was up before its reply arrived. The connection is kept; a reply that still comes is dropped.
    #[error(transparent)]
    TimedOut(#[from] TimedOut),
    /// A transaction was not executed as one, and none of its commands at all unless the text says so.
    #[error(transparent)]
    Aborted(#[from] AbortedTransaction),
    /// The reply is not of the type it was to be converted to. The command ran.
    #[error(transparent)]
    Unexpected(#[from] UnexpectedReply),
    /// The command cannot travel on a connection shared by many tasks. It was not sent.
    #[error(transparent)]
    Refused(#[from] RefusedCommand),
}

impl Error {
    /// What became of the command, or of the pipeline that it was part of: what matters before a retry.
    #[must_use]
    pub fn fate(&self) -> Fate {
        match self {
            Self::Server(_) | Self::Unexpected(_) | Self::Aborted(_) => Fate::Answered,
            Self::Lost(LostConnection { may_have_run: true, .. })
            | Self::TimedOut(TimedOut { may_have_run: true, .. }) => Fate::MayHaveRun,
            Self::Endpoint(_) | Self::Connect(_) | Self::Refused(_) | Self::Lost(_) | Self::TimedOut(_) => {
                Fate::NotSent
            }
        }
    }

    /// Whether the server may have executed the command, or some command of the pipeline: any fate but
    /// [`Fate::NotSent`], and not a transaction that was answered with its refusal.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Aborted(aborted) => matches!(aborted, AbortedTransaction::NotBegun { .. }),
            _ => self.fate() != Fate::NotSent,
        }
    }

    /// The server's own error, where the failure is one: an error reply, or a login it refused.
    #[must_use]
    pub fn server(&self) -> Option<&ServerError> {
        match self {
            Self::Server(error) => Some(error),
            Self::Connect(error) => error.cause.rejected(),
            _ => None,
        }
    }
}

/// What became of a command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The last byte of it never left, or nobody was there to take it. It did not run; a retry cannot run it twice.
    NotSent,
    /// It left, or was about to, and no reply came. Whether it ran is unknown.
    MayHaveRun,
    /// The server answered it, with an error or with something else that is not what was wanted.
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

impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// A connection that ended while somebody needed it.
#[derive(Clone, Debug)]
pub struct LostConnection {
    /// `host:port`, or what was said instead of it.
    pub(crate) peer: Arc<str>,
    pub(crate) cause: Arc<LostCause>,
    pub(crate) may_have_run: bool,
}

impl LostConnection {
    /// What ended the connection; the same for every request that was waiting on it.
    #[must_use]
    pub fn cause(&self) -> &LostCause {
        &self.cause
    }
}

impl fmt::Display for LostConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fate = if self.may_have_run { Fate::MayHaveRun } else { Fate::NotSent };
        write!(f, "connection to {} lost: {}; {fate}", self.peer, Chain(&*self.cause))
    }
}

// No source: the whole chain is in our own text, and nothing is said twice. `cause` has the errors themselves.
impl std::error::Error for LostConnection {}

/// A command whose time was up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedOut {
    pub(crate) peer: Arc<str>,
    pub(crate) limit: Duration,
    pub(crate) may_have_run: bool,
}

impl TimedOut {
    /// How long the command was allowed to take.
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

/// A transaction that was not executed as one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AbortedTransaction {
    /// A watched key changed. Read again and try again.
    #[error("the transaction was not executed: a watched key changed")]
    Watched,
    /// The server refused one of its commands, and so all of them.
    #[error("the transaction was not executed: the server refused command {index}: {error}")]
    Refused {
        /// Which command, counted from 0.
        index: usize,
        /// Why.
        error: ServerError,
    },
    /// The server refused MULTI, and so ran the commands after it one by one, as if there were no transaction.
    #[error("the server refused MULTI, and its commands ran without a transaction: {error}")]
    NotBegun {
        /// Why.
        error: ServerError,
    },
}

/// What ended a connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LostCause {
    /// The peer closed its side.
    #[error("the peer closed it")]
    PeerClosed,
    /// Reading or writing failed.
    #[error(transparent)]
    Io(io::Error),
    /// The peer sent something that is not RESP; nothing after it can be trusted.
    #[error("the peer broke the protocol: {0}")]
    Protocol(ProtocolError),
    /// [`Client::close`](crate::Client::close) was called.
    #[error("it was closed by this program")]
    Closed,
    /// A call on a connection of one's own was dropped before its reply; nobody knows what comes next on it.
    #[error("a call on it was dropped before its reply")]
    Cancelled,
    /// A call on a connection with one owner got no reply in time; what comes next on it is unknown.
    #[error("a call on it got no reply within {limit:?}")]
    TimedOut {
        /// How long the call was allowed to take.
        limit: Duration,
    },
    /// A subscriber did not take its messages in time, and was to be disconnected for it.
    #[error("the subscriber was too slow")]
    SlowConsumer,
    /// The task that drives the connection was dropped, as when its runtime shuts down.
    #[error("its task was stopped, has the runtime shut down?")]
    Stopped,
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
