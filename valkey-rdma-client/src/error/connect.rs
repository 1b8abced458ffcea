//! [`ConnectError`]: why no connection was made, and what to do about it.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use valkey_rdma_resp::{RespError, ServerError, ServerErrorKind};
use valkey_rdma_transport::address::AddressError;
use valkey_rdma_transport::tls::TlsError;
use valkey_rdma_transport::{TransportError, is_out_of_descriptors};

use super::advice::advice_on_login;
use super::{Chain, LostCause, PasswordError};
use crate::endpoint::Transport;

/// A failed connect: the peer, the transport and the cause.
#[derive(Clone, Debug)]
pub struct ConnectError {
    pub(crate) peer: Arc<str>,
    /// `None`: a Unix socket.
    pub(crate) transport: Option<Transport>,
    /// True if the endpoint asks for TLS.
    pub(crate) tls: bool,
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
        write!(f, "cannot connect to {} over ", self.peer)?;
        match self.transport {
            Some(transport) => transport.fmt(f)?,
            None => f.write_str("unix")?,
        }
        f.write_str(if self.tls { " with TLS" } else { "" })?;
        match &self.cause {
            cause if f.alternate() => write!(f, ": {cause}"),
            // What comes from below is the source.
            ConnectCause::Resolve(error) => write!(f, ": the name does not resolve; {}", resolve_hint(error)),
            ConnectCause::Io(error) if error.kind() != io::ErrorKind::ConnectionRefused => {
                write!(f, "; {}", io_hint(error))
            }
            ConnectCause::Socket(error) => write!(f, "; {}", socket_hint(error)),
            ConnectCause::Device(error) => write!(f, ": {error}{}", device_hint(error)),
            ConnectCause::Lost(cause) => match &**cause {
                LostCause::Io(_) | LostCause::Protocol(_) => {
                    write!(f, ": the handshake failed; {}", handshake_hint(cause))
                }
                _ => write!(f, ": {}", self.cause),
            },
            cause => write!(f, ": {cause}"),
        }?;
        f.write_str(match &self.cause {
            ConnectCause::Deadline { connected: false, .. }
                if self.transport == Some(Transport::Emulated) =>
            {
                "; only this project's servers answer emulated://"
            }
            ConnectCause::Lost(cause) if self.tls && has_just_ended(cause) => {
                " Does it accept this client's certificate?"
            }
            ConnectCause::Lost(cause) if !self.tls && self.transport == Some(Transport::Tcp) => {
                tls_port_hint(cause)
            }
            _ => "",
        })
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            ConnectCause::Resolve(error) | ConnectCause::Io(error) | ConnectCause::Socket(error) => {
                Some(&**error)
            }
            // Its own text is ours too: it says what to do.
            ConnectCause::Device(error) => error.source(),
            ConnectCause::Lost(cause) => match &**cause {
                LostCause::Io(error) => Some(error),
                LostCause::Protocol(error) => Some(error),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The step of a connect that failed. Its text includes the underlying errors and ends with advice.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ConnectCause {
    /// The host name does not resolve.
    Resolve(Arc<io::Error>),
    /// The host is an address that cannot be used: the interface of a link-local address is missing, or unknown.
    Address(AddressError),
    /// The host name has no address.
    NoAddress,
    /// TCP failed to connect.
    Io(Arc<io::Error>),
    /// The Unix socket could not be connected to.
    Socket(Arc<io::Error>),
    /// The RDMA or emulated device failed to connect.
    Device(Arc<TransportError>),
    /// Connect, login and setup together exceeded the endpoint's timeout.
    Deadline {
        /// The endpoint's timeout.
        limit: Duration,
        /// True if the peer accepted the connection: something listens there but does not answer.
        connected: bool,
    },
    /// The server answered the login or setup with an error.
    Rejected(ServerError),
    /// There is no password to log in with: its file cannot be read, or the program's provider failed. Nothing was sent.
    Password(Arc<PasswordError>),
    /// The connection ended during login and setup.
    Lost(Arc<LostCause>),
    /// The client runs on a stream supplied by the program and needs another connection.
    OnlyOneStream,
    /// No Sentinel answers.
    NoSentinel {
        /// How many were asked.
        asked: usize,
        /// Why the last one did not answer.
        last: Arc<str>,
    },
    /// There is no TLS connection, and nothing of the program's was sent.
    Tls(Arc<TlsError>),
    /// The peer did not complete the TLS handshake in time.
    SilentInTls {
        /// The endpoint's timeout.
        limit: Duration,
    },
    /// The server offers no TLS over RDMA, and the endpoint asks for it. Nothing was sent.
    NoTlsOverRdma,
    /// The Sentinels that answer know no primary of the service.
    UnknownService {
        /// The name of the service.
        service: Arc<str>,
        /// How many Sentinels were asked.
        asked: usize,
    },
    /// The Sentinels report an address, and its RDMA port cannot be found.
    NoPrimaryPort {
        /// The address.
        address: Arc<str>,
        /// Why its port is unknown.
        reason: Arc<str>,
    },
    /// The server that the Sentinels report has another role.
    NotPrimary {
        /// Its address.
        address: Arc<str>,
        /// Its role.
        role: Arc<str>,
    },
    /// A node of a cluster was expected there, and the server is none of its nodes. Nothing of the program's was sent.
    AnotherCluster {
        /// The id of the server.
        id: Arc<str>,
    },
    /// The connection belongs to another process, which this one was forked from. It was not used.
    Forked {
        /// That process.
        owner: u32,
    },
    /// RDMA failed, and so did the TCP fallback (`fallback=tcp`).
    Fallback {
        /// Why RDMA failed.
        rdma: Box<ConnectCause>,
        /// Why TCP failed.
        tcp: Box<ConnectCause>,
    },
}

impl ConnectError {
    /// True if the server does not accept the login, or requires one.
    pub(crate) fn refuses_login(&self) -> bool {
        self.cause.refuses_login()
    }
}

impl ConnectCause {
    /// The cause, if [`address::resolve`](valkey_rdma_transport::address::resolve) failed.
    #[must_use]
    pub fn of_resolve(error: io::Error) -> Self {
        match AddressError::within(&error) {
            Some(error) => Self::Address(error.clone()),
            None => Self::Resolve(Arc::new(error)),
        }
    }

    /// Why a connection has ended in the login. A server reports some faults of a TLS 1.3 handshake when the client has completed it.
    pub(crate) fn of_login(cause: LostCause) -> Self {
        let refused = match &cause {
            LostCause::Io(error) if !has_just_ended(&cause) => {
                error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()).cloned()
            }
            _ => None,
        };
        match refused {
            Some(error) => Self::Tls(Arc::new(error)),
            None => Self::Lost(Arc::new(cause)),
        }
    }

    /// True if another try would end alike, unless somebody changes the settings.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Rejected(_) | Self::Password(_) | Self::NoSentinel { .. } | Self::UnknownService { .. }
        )
    }

    /// True if the server does not accept the login, or requires one.
    pub(crate) fn refuses_login(&self) -> bool {
        let kind = self.rejected().map(ServerError::kind);
        matches!(kind, Some(ServerErrorKind::NoAuth | ServerErrorKind::WrongPass))
    }

    /// True if the server does not accept the user, or does not let it do what every connection begins with.
    pub(crate) fn refuses_user(&self) -> bool {
        use ServerErrorKind::{NoAuth, NoPerm, WrongPass};
        self.rejected().is_some_and(|refusal| matches!(refusal.kind(), NoAuth | NoPerm | WrongPass))
    }

    /// True if the server is not a node of the cluster.
    pub(crate) fn is_another_cluster(&self) -> bool {
        match self {
            Self::AnotherCluster { .. } => true,
            Self::Fallback { tcp, .. } => tcp.is_another_cluster(),
            _ => false,
        }
    }

    /// The server's refusal, if that was the cause.
    pub(super) fn rejected(&self) -> Option<&ServerError> {
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
                write!(f, "the name does not resolve ({}); {}", Chain(&**error), resolve_hint(error))
            }
            Self::Address(error) => error.fmt(f),
            Self::NoAddress => f.write_str("the name has no address; check the host"),
            Self::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                f.write_str("connection refused; is a server listening on this port?")
            }
            Self::Io(error) => {
                write!(f, "{}; {}", Chain(&**error), io_hint(error))
            }
            Self::Socket(error) => write!(f, "{}; {}", Chain(&**error), socket_hint(error)),
            Self::Device(error) => write!(f, "{}{}", Chain(&**error), device_hint(error)),
            Self::Deadline { limit, connected: false } => {
                write!(f, "no answer within {limit:?}; check host and port, or raise the timeout")
            }
            Self::Deadline { limit, connected: true } => write!(
                f,
                "the peer accepted but did not answer within {limit:?}; is it a Valkey server? else raise the timeout"
            ),
            Self::Password(error) => error.fmt(f),
            Self::Tls(error) => Chain(&**error).fmt(f),
            Self::SilentInTls { limit } => write!(
                f,
                "the peer did not complete the TLS handshake within {limit:?}; is this its TLS port? else raise the timeout"
            ),
            Self::NoTlsOverRdma => f.write_str(
                "the server offers no TLS over RDMA, as every stock Valkey; run valkey-rdma-gateway with an rdmas: listener beside it, \
                 or use TLS over TCP: valkeys://",
            ),
            Self::AnotherCluster { id } => write!(
                f,
                "the server there is node {id}, which this cluster does not have; has another cluster taken the address? See CLUSTER NODES"
            ),
            Self::Forked { owner } => write!(
                f,
                "the connection belongs to process {owner}, which this one was forked from; connect a client in this process"
            ),
            Self::Fallback { rdma, tcp } => write!(f, "{rdma}; and over tcp instead: {tcp}"),
            Self::NoSentinel { asked, last } => {
                write!(
                    f,
                    "none of {asked} Sentinels answers; check their addresses in the URL; the last one: {last}"
                )
            }
            Self::UnknownService { service, asked } => write!(
                f,
                "the {asked} Sentinels know no primary of \"{service}\"; check the name, as SENTINEL MASTERS lists it"
            ),
            Self::NoPrimaryPort { address, reason } => {
                write!(f, "the Sentinels report {address}, but {reason}; set rdma_port")
            }
            Self::NotPrimary { address, role } => write!(
                f,
                "the Sentinels report {address}, whose role is {role}; a failover may be in progress, try again"
            ),
            Self::OnlyOneStream => {
                f.write_str("only its program can make another stream; use Client::connect_with_dialer")
            }
            Self::Rejected(error) => write!(f, "the server said \"{error}\"; {}", advice_on_login(error)),
            Self::Lost(cause) => {
                write!(f, "{} during the handshake; {}", Chain(&**cause), handshake_hint(cause))
            }
        }
    }
}

fn resolve_hint(error: &Arc<io::Error>) -> &'static str {
    if is_out_of_descriptors(&**error) { MORE_FILES } else { "check the host" }
}

fn io_hint(error: &Arc<io::Error>) -> &'static str {
    if is_out_of_descriptors(&**error) { MORE_FILES } else { "check host and port" }
}

fn socket_hint(error: &Arc<io::Error>) -> &'static str {
    match error.kind() {
        _ if is_out_of_descriptors(&**error) => MORE_FILES,
        io::ErrorKind::NotFound => {
            "there is no such file: does the server run, and is this its `unixsocket`?"
        }
        io::ErrorKind::PermissionDenied => {
            "this user may not use the socket: see `unixsocketperm` of the server, and the folders above"
        }
        io::ErrorKind::ConnectionRefused => {
            "no server listens there: has the one that made this socket ended?"
        }
        _ => "does a server listen there?",
    }
}

/// What to do about a device's error whose own text does not say it.
fn device_hint(error: &TransportError) -> String {
    match error {
        TransportError::Descriptors { .. } | TransportError::SystemDescriptors { .. } => String::new(),
        _ if is_out_of_descriptors(error) => format!("; {MORE_FILES}"),
        _ => String::new(),
    }
}

/// Whether the peer has ended the connection, and said nothing.
fn has_just_ended(cause: &LostCause) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    match cause {
        LostCause::PeerClosed => true,
        LostCause::Io(error) => {
            matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
        }
        _ => false,
    }
}

/// What to do where a plain connection may have reached a TLS port that ends it without an alert.
fn tls_port_hint(cause: &LostCause) -> &'static str {
    if has_just_ended(cause) { " Its TLS port needs valkeys://" } else { "" }
}

/// The first byte of a TLS alert.
const TLS_ALERT: u8 = 0x15;

const HANDSHAKE_HINT: &str = "is it a Valkey server, and does it admit this address?";

/// What to do about a connection that ended in the handshake.
fn handshake_hint(cause: &LostCause) -> &'static str {
    match cause {
        LostCause::OutOfStep(_) | LostCause::Protocol(RespError::Unsolicited) => {
            "is it a Valkey server, and does something between change its replies?"
        }
        LostCause::Protocol(RespError::UnknownType { byte: TLS_ALERT, .. }) => {
            "it answered with TLS: use valkeys://"
        }
        _ => HANDSHAKE_HINT,
    }
}

const MORE_FILES: &str = "raise the limit of open files (ulimit -n), or open fewer connections";

#[cfg(test)]
mod tests;
