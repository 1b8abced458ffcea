//! [`ConnectError`]: why no connection was made, and what to do about it.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use valkey_rdma_resp::{RespError, ServerError, ServerErrorKind};
use valkey_rdma_transport::address::AddressError;
use valkey_rdma_transport::{TransportError, is_out_of_descriptors};

use super::advice::advice_on_login;
use super::{Chain, LostCause};
use crate::endpoint::Transport;

/// A failed connect: the peer, the transport and the cause.
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
        write!(f, "cannot connect to {} over {}", self.peer, self.transport)?;
        match &self.cause {
            cause if f.alternate() => write!(f, ": {cause}"),
            // What comes from below is the source.
            ConnectCause::Resolve(error) => write!(f, ": the name does not resolve; {}", resolve_hint(error)),
            ConnectCause::Io(error) if error.kind() != io::ErrorKind::ConnectionRefused => {
                write!(f, "; {}", io_hint(error))
            }
            ConnectCause::Device(error) => write!(f, ": {error}{}", device_hint(error)),
            ConnectCause::Lost(cause) => match &**cause {
                LostCause::Io(_) | LostCause::Protocol(_) => {
                    write!(f, ": the handshake failed; {}", handshake_hint(cause))
                }
                _ => write!(f, ": {}", self.cause),
            },
            cause => write!(f, ": {cause}"),
        }?;
        match self.cause {
            ConnectCause::Deadline { connected: false, .. } if self.transport == Transport::Emulated => {
                f.write_str("; only this project's servers answer emulated://")
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            ConnectCause::Resolve(error) | ConnectCause::Io(error) => Some(&**error),
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
        let kind = self.cause.rejected().map(ServerError::kind);
        matches!(kind, Some(ServerErrorKind::NoAuth | ServerErrorKind::WrongPass))
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

    /// True if another try would end alike, unless somebody changes the settings.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Rejected(_) | Self::NoSentinel { .. } | Self::UnknownService { .. })
    }

    /// True if the server does not accept the user, or does not let it do what every connection begins with.
    pub(crate) fn refuses_user(&self) -> bool {
        use ServerErrorKind::{NoAuth, NoPerm, WrongPass};
        self.rejected().is_some_and(|refusal| matches!(refusal.kind(), NoAuth | NoPerm | WrongPass))
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
            Self::Device(error) => write!(f, "{}{}", Chain(&**error), device_hint(error)),
            Self::Deadline { limit, connected: false } => {
                write!(f, "no answer within {limit:?}; check host and port, or raise the timeout")
            }
            Self::Deadline { limit, connected: true } => write!(
                f,
                "the peer accepted but did not answer within {limit:?}; is it a Valkey server? else raise the timeout"
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

/// What to do about a device's error whose own text does not say it.
fn device_hint(error: &TransportError) -> String {
    match error {
        TransportError::Descriptors { .. } | TransportError::SystemDescriptors { .. } => String::new(),
        _ if is_out_of_descriptors(error) => format!("; {MORE_FILES}"),
        _ => String::new(),
    }
}

const HANDSHAKE_HINT: &str = "is it a Valkey server, and does it admit this address?";

/// What to do about a connection that ended in the handshake.
fn handshake_hint(cause: &LostCause) -> &'static str {
    match cause {
        LostCause::OutOfStep(_) | LostCause::Protocol(RespError::Unsolicited) => {
            "is it a Valkey server, and does something between change its replies?"
        }
        _ => HANDSHAKE_HINT,
    }
}

const MORE_FILES: &str = "raise the limit of open files (ulimit -n), or open fewer connections";

#[cfg(test)]
mod tests;
