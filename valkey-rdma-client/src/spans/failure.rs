//! [`Failure`]: what a span says of an error: its kind, of which there are few. Never its text, because a server may repeat a key or a value there.

use valkey_rdma_resp::{ServerError, ServerErrorKind};
use valkey_rdma_transport::TransportError;

use crate::error::{AbortedTransaction, ClusterError, ConnectCause, Error};

/// Codes of Valkey and of the gateway that [`ServerErrorKind`] does not name.
const MORE_CODES: [&str; 13] = [
    "ERR",
    "BUSYGROUP",
    "BUSYKEY",
    "INPROG",
    "INVALIDOBJ",
    "IOERR",
    "NODIRECT",
    "NOGOODSLAVE",
    "NOGROUP",
    "NOMASTERLINK",
    "NOTBUSY",
    "NOUPSTREAM",
    "UNKILLABLE",
];

/// The attributes of a failed span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure<'a> {
    /// `error.type`: that code, or one of this file's words.
    pub(super) kind: &'a str,
    /// `db.response.status_code`: the code of the server's error.
    pub(super) code: Option<&'a str>,
}

impl<'a> Failure<'a> {
    fn of_kind(kind: &'a str) -> Self {
        Self { kind, code: None }
    }
}

/// A script can make an error whose first word is anything, also a key. So only words that are known are exported.
impl<'a> From<&'a ServerError> for Failure<'a> {
    fn from(error: &'a ServerError) -> Self {
        let code = error.code.as_str();
        if error.kind() != ServerErrorKind::Other || MORE_CODES.contains(&code) {
            Self { kind: code, code: Some(code) }
        } else {
            Self::of_kind(OTHER)
        }
    }
}

impl<'a> From<&'a Error> for Failure<'a> {
    fn from(error: &'a Error) -> Self {
        Self::of_kind(match error {
            Error::Server(reply) => return reply.into(),
            Error::Connect(error) => return error.cause().into(),
            Error::InPipeline(failed) => return (&failed.error).into(),
            Error::Cluster(error) => return error.into(),
            Error::Aborted(
                AbortedTransaction::Refused { error, .. } | AbortedTransaction::NotBegun { error },
            ) => return error.into(),
            Error::Aborted(AbortedTransaction::Watched) => "watched_key_changed",
            Error::Lost(_) => "connection_lost",
            Error::TimedOut(_) => "timeout",
            Error::Unexpected(_) => "unexpected_reply",
            Error::Refused(_) => "refused_by_client",
            Error::Endpoint(_) => "invalid_endpoint",
        })
    }
}

impl<'a> From<&'a ClusterError> for Failure<'a> {
    fn from(error: &'a ClusterError) -> Self {
        Self::of_kind(match error {
            ClusterError::NotACluster { error, .. } | ClusterError::Redirected { last: error, .. } => {
                return error.into();
            }
            ClusterError::Unreachable { last: error, .. } | ClusterError::Partial { first: error, .. } => {
                return (&**error).into();
            }
            ClusterError::CrossSlot { .. } => "cross_slot",
            ClusterError::Uncovered { .. } => "uncovered_slot",
            ClusterError::NoRoute { .. } => "no_route",
            ClusterError::AnotherCluster { .. } => "another_cluster",
            _ => "cluster",
        })
    }
}

impl<'a> From<&'a ConnectCause> for Failure<'a> {
    fn from(cause: &'a ConnectCause) -> Self {
        use std::io::ErrorKind::{ConnectionRefused, TimedOut};
        Self::of_kind(match cause {
            ConnectCause::Rejected(reply) => return reply.into(),
            ConnectCause::Fallback { tcp, .. } => return (&**tcp).into(),
            ConnectCause::Resolve(_) | ConnectCause::Address(_) | ConnectCause::NoAddress => {
                "name_resolution"
            }
            ConnectCause::Io(error) | ConnectCause::Socket(error) => match error.kind() {
                ConnectionRefused => "connection_refused",
                TimedOut => "timeout",
                _ => "io",
            },
            ConnectCause::Device(error) => match **error {
                TransportError::Refused { .. } | TransportError::Rejected { .. } => "connection_refused",
                _ => "device",
            },
            ConnectCause::Deadline { .. } | ConnectCause::SilentInTls { .. } => "timeout",
            ConnectCause::Password(_) => "no_password",
            ConnectCause::Lost(_) => "connection_lost",
            ConnectCause::Tls(_) | ConnectCause::NoTlsOverRdma => "tls",
            ConnectCause::NoSentinel { .. }
            | ConnectCause::UnknownService { .. }
            | ConnectCause::NoPrimaryPort { .. }
            | ConnectCause::NotPrimary { .. } => "no_primary",
            ConnectCause::AnotherCluster { .. } => "another_cluster",
            ConnectCause::OnlyOneStream | ConnectCause::Forked { .. } => OTHER,
        })
    }
}

/// The conventions' word for everything else.
const OTHER: &str = "_OTHER";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_an_error_is_exported_and_nothing_that_a_script_may_have_put_there() {
        let wrong_type = ServerError::from_reply(b"WRONGTYPE Operation against a key");
        assert_eq!(Failure::from(&wrong_type), Failure { kind: "WRONGTYPE", code: Some("WRONGTYPE") });
        let no_direct = ServerError::from_reply(b"NODIRECT this connection has no direct transfers");
        assert_eq!(Failure::from(&no_direct), Failure { kind: "NODIRECT", code: Some("NODIRECT") });
        for text in ["user:17 is not known", "ALICE-4711 is not known", "My error", ""] {
            let failure = Error::Server(ServerError::from_reply(text.as_bytes()));
            assert_eq!(Failure::from(&failure), Failure { kind: "_OTHER", code: None }, "{text}");
        }
    }
}
