//! What can go wrong, in layers: a URL, a connect, a lost connection, a command we refuse, a server's own error reply.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use valkey_rdma_resp::{ProtocolError, ServerError, ServerErrorKind, UnexpectedReply};
use valkey_rdma_transport::TransportError;

use crate::endpoint::{EndpointError, Transport};

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

/// Why no connection came about: to whom, over what, and the cause.
#[derive(Clone, Debug)]
pub struct ConnectError {
    pub(crate) peer: Arc<str>,
    pub(crate) transport: Transport,
    pub(crate) cause: ConnectCause,
}

impl ConnectError {
    /// What went wrong.
    #[must_use]
    pub fn cause(&self) -> &ConnectCause {
        &self.cause
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot connect to {} over {}: {}", self.peer, self.transport, self.cause)
    }
}

// As for `LostConnection`: no source.
impl std::error::Error for ConnectError {}

/// The step of a connect that failed. Its text has the errors below it too, and ends with what to do about it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ConnectCause {
    /// The host name does not resolve.
    Resolve(Arc<io::Error>),
    /// The host name resolves to nothing.
    NoAddress,
    /// TCP said no.
    Io(Arc<io::Error>),
    /// The RDMA or emulated device said no.
    Device(Arc<TransportError>),
    /// Connect, login and setup together took longer than the endpoint's timeout.
    Deadline {
        /// The endpoint's timeout.
        limit: Duration,
        /// Whether the peer had accepted the connection: then something listens there, but does not answer.
        connected: bool,
    },
    /// The server answered the login or setup with an error.
    Rejected(ServerError),
    /// The connection was accepted and then ended during login and setup.
    Lost(Arc<LostCause>),
    /// The client runs on a stream that the program brought along, and needs another connection.
    OnlyOneStream,
    /// RDMA failed, and so did TCP instead of it (`fallback=tcp`).
    Fallback {
        /// Why there is no connection over RDMA.
        rdma: Box<ConnectCause>,
        /// Why there is none over TCP either.
        tcp: Box<ConnectCause>,
    },
}

impl ConnectCause {
    /// The server's refusal, in the end.
    fn rejected(&self) -> Option<&ServerError> {
        match self {
            Self::Rejected(error) => Some(error),
            Self::Fallback { tcp, .. } => tcp.rejected(),
            _ => None,
        }
    }
}

impl fmt::Display for ConnectCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(error) => {
                let advice = if out_of_files(&**error) { MORE_FILES } else { "check the host" };
                write!(f, "the name does not resolve ({}); {advice}", Chain(&**error))
            }
            Self::NoAddress => f.write_str("the name has no address; check the host"),
            Self::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                f.write_str("connection refused; is a server listening on this port?")
            }
            Self::Io(error) => {
                let advice = if out_of_files(&**error) { MORE_FILES } else { "check host and port" };
                write!(f, "{}; {advice}", Chain(&**error))
            }
            Self::Device(error) if out_of_files(&**error) => write!(f, "{}; {MORE_FILES}", Chain(&**error)),
            Self::Device(error) => Chain(&**error).fmt(f),
            Self::Deadline { limit, connected: false } => {
                write!(f, "no answer within {limit:?}; check host and port, or raise the timeout")
            }
            Self::Deadline { limit, connected: true } => write!(
                f,
                "the peer accepted but did not answer within {limit:?}; is it a Valkey server? else raise the timeout"
            ),
            Self::Fallback { rdma, tcp } => write!(f, "{rdma}; and over tcp instead: {tcp}"),
            Self::OnlyOneStream => f.write_str("only its program can make another stream; use Client::dial"),
            Self::Rejected(error) => write!(f, "the server said \"{error}\"; {}", advice(error)),
            Self::Lost(cause) => {
                write!(
                    f,
                    "{} during the handshake; is it a Valkey server, and does it admit this address?",
                    Chain(&**cause)
                )
            }
        }
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

/// Whether the cause of `error` is that this process, or this machine, has too many files open.
fn out_of_files(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| matches!(error.raw_os_error(), Some(EMFILE | ENFILE)))
}

/// The process's limit is reached. The same number on every Unix; `std` has no kind for it.
const EMFILE: i32 = 24;
/// The machine's limit is reached.
const ENFILE: i32 = 23;

const MORE_FILES: &str = "raise the limit of open files (ulimit -n), or open fewer connections";

/// What a user can do about a server that refuses our login or setup.
fn advice(error: &ServerError) -> &'static str {
    match error.kind() {
        ServerErrorKind::NoAuth => "give the password as user:password@ before the host",
        ServerErrorKind::WrongPass => "check user and password",
        ServerErrorKind::NoProto => "it does not speak RESP3: use protocol=resp2",
        ServerErrorKind::ProtectedMode => {
            "its protected mode admits local clients only: set a password or protected-mode no there"
        }
        ServerErrorKind::MaxClients => "raise maxclients there, or open fewer connections",
        ServerErrorKind::Loading | ServerErrorKind::MasterDown | ServerErrorKind::Busy => {
            "it is not ready yet: try again later"
        }
        _ if error.message.starts_with("unknown command") => "an old server: use protocol=resp2",
        _ if error.message.contains("DB index") => "check the database number after the port",
        _ => "check the server's configuration",
    }
}

/// A command that this client does not send, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{command} was not sent: {reason}")]
#[non_exhaustive]
pub struct RefusedCommand {
    /// The command's name as the caller wrote it.
    pub command: String,
    /// Why, and what to use instead.
    pub reason: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn too_many_files() -> io::Error {
        io::Error::from_raw_os_error(EMFILE)
    }

    fn device(call: &'static str) -> TransportError {
        TransportError::Device { call, source: too_many_files() }
    }

    fn text(error: impl Into<Error>) -> String {
        let error = error.into();
        assert!(std::error::Error::source(&error).is_none(), "the text has the whole chain");
        error.to_string()
    }

    #[test]
    fn a_failed_connect_tells_the_whole_story() {
        let connect = |transport, cause| text(ConnectError { peer: "h:1".into(), transport, cause });
        let system = too_many_files();
        let files = "raise the limit of open files (ulimit -n), or open fewer connections";

        let cause = ConnectCause::Device(Arc::new(device("rdma_create_event_channel")));
        assert_eq!(
            connect(Transport::Rdma, cause),
            format!("cannot connect to h:1 over rdma: rdma_create_event_channel failed: {system}; {files}")
        );
        for (cause, transport) in [
            (ConnectCause::Io(Arc::new(too_many_files())), Transport::Tcp),
            (ConnectCause::Resolve(Arc::new(too_many_files())), Transport::Rdma),
        ] {
            let text = connect(transport, cause);
            assert!(text.contains(&format!("{system}")) && text.ends_with(files), "{text}");
        }
        let lost = io::Error::other(device("ibv_poll_cq"));
        let text = connect(Transport::Rdma, ConnectCause::Lost(Arc::new(LostCause::Io(lost))));
        assert!(text.contains(&format!(": ibv_poll_cq failed: {system} during the handshake")), "{text}");
    }

    #[test]
    fn a_lost_connection_tells_the_whole_story() {
        let cause = Arc::new(LostCause::Io(io::Error::other(device("ibv_poll_cq"))));
        let text = text(LostConnection { peer: "h:1".into(), cause, may_have_run: true });
        let system = too_many_files();
        let told = format!("connection to h:1 lost: ibv_poll_cq failed: {system}; the command may have run");
        assert_eq!(text, told);
    }
}
