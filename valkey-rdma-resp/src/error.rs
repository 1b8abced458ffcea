//! What can be wrong: a [`CommandError`] is a client's, a [`RespError`] is a server's. A [`ServerError`] is a reply.

use crate::protocol::Protocol;

macro_rules! requires_tls {
    () => {
        "this port requires TLS"
    };
}

/// The reply of this project's servers to a client that does not use TLS at a port that requires it.
#[doc(hidden)]
pub const TLS_REQUIRED: &[u8] = concat!(
    "-ERR ",
    requires_tls!(),
    ": connect with valkeys:// or rediss://, over RDMA with rdmas:// (valkey-cli --tls)\r\n"
)
.as_bytes();

/// A client sent something that is not a command. Nothing can be parsed after it: send the text and close.
///
/// `Display` is the text that Valkey sends after `-ERR `.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// An inline command of more than 64 KiB, or with a NUL, behind which Valkey finds no end.
    #[error("Protocol error: too big inline request")]
    InlineTooLong,
    /// A quote in an inline command is not closed.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The line with the number of words has more than 64 KiB.
    #[error("Protocol error: too big mbulk count string")]
    CountLineTooLong,
    /// The number of words is not a number, or above 2 147 483 647.
    #[error("Protocol error: invalid multibulk length")]
    InvalidCount,
    /// More words than a client that is not trusted may send.
    #[error("Protocol error: unauthenticated multibulk length")]
    UntrustedCount,
    /// The line with the length of a word has more than 64 KiB.
    #[error("Protocol error: too big bulk count string")]
    BulkLineTooLong,
    /// A word does not start with `$`.
    #[error("Protocol error: expected '$', got '{}'", shown(*found))]
    ExpectedBulk {
        /// The byte in its place.
        found: u8,
    },
    /// The length of a word is not a number, negative, or above the limit.
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLen,
    /// A longer word than a client that is not trusted may send.
    #[error("Protocol error: unauthenticated bulk length")]
    UntrustedBulkLen,
    /// CRLF does not follow a word of the announced length, or LF the first CR of a header. Servers before Valkey 9.1 read on.
    #[error("Protocol error: invalid CRLF in request")]
    InvalidCrlf,
}

/// A byte in the text of an error, which is one line. Valkey shows bytes beyond ASCII as they are.
fn shown(byte: u8) -> char {
    if matches!(byte, b'\r' | b'\n') { ' ' } else { char::from(byte) }
}

/// The server sent something that is not a RESP reply. Nothing after it in the stream has a meaning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RespError {
    /// A reply starts with a byte that is not a type of this protocol version.
    #[error("unexpected byte {byte:#04x} at the start of a {protocol} reply; is this a Valkey port?")]
    UnknownType {
        /// The byte.
        byte: u8,
        /// The protocol version in use.
        protocol: Protocol,
    },
    /// A length or count that is negative, not a number, or above the limit.
    #[error("bad length \"{text}\", expected 0 to {limit}")]
    BadLength {
        /// The length as sent, cut to 32 bytes.
        text: String,
        /// The largest length accepted.
        limit: u64,
    },
    /// A line without an end. A long line of text does not break the protocol: see [`Decoder::next`](crate::Decoder::next).
    #[error("a line of more than {limit} bytes")]
    LineTooLong {
        /// The longest line accepted, in bytes.
        limit: usize,
    },
    /// CRLF does not follow a string of the announced length.
    #[error("a string of {len} bytes is not followed by CRLF")]
    Unterminated {
        /// Announced length in bytes: of the string, without header and CRLF.
        len: usize,
    },
    /// Aggregates are nested deeper than can be passed over. A reply that is nested less deeply does not break the protocol: see
    /// [`Decoder::next`](crate::Decoder::next).
    #[error("a reply nested deeper than {limit} levels")]
    TooDeep {
        /// The deepest nesting accepted.
        limit: usize,
    },
    /// A scalar whose text does not fit its type.
    #[error("a malformed value of type '{kind}'")]
    BadScalar {
        /// The type byte.
        kind: char,
    },
    /// A reply without a command that waits for it.
    #[error("a reply arrived without a pending request")]
    Unsolicited,
}

impl RespError {
    /// Reports `text`, which was sent as a length, as a [`BadLength`](Self::BadLength).
    #[cold]
    pub(crate) fn bad_length(text: &[u8], limit: u64) -> Self {
        let shown = &text[..text.len().min(32)];
        Self::BadLength { text: String::from_utf8_lossy(shown).into_owned(), limit }
    }
}

/// An error reply. It is a valid answer: the server received the command and refused it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{code}{}{message}", if message.is_empty() { "" } else { " " })]
#[non_exhaustive]
pub struct ServerError {
    /// The first word of the reply, such as `ERR`, `WRONGTYPE`, `NOAUTH` or `LOADING`.
    pub code: String,
    /// The rest of the reply, empty if it has one word only. Bytes that are not UTF-8 are replaced.
    pub message: String,
}

/// The meaning of an error reply, from its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerErrorKind {
    /// NOAUTH: the connection has to log in first.
    NoAuth,
    /// WRONGPASS: user or password is wrong.
    WrongPass,
    /// NOPERM: the user has no permission for the command, key or channel.
    NoPerm,
    /// NOPROTO: the server does not support the requested protocol version.
    NoProto,
    /// LOADING: the server is reading its data from disk.
    Loading,
    /// READONLY: a write on a replica. After a failover, the address may no longer be that of the primary.
    ReadOnly,
    /// MASTERDOWN: the replica has lost its primary.
    MasterDown,
    /// BUSY: a script has run for too long.
    Busy,
    /// The server is at its client limit (`maxclients`).
    MaxClients,
    /// DENIED: protected mode; the server accepts only clients on its own machine. Over RDMA such a server closes the
    /// connection without this reply.
    ProtectedMode,
    /// MISCONF: it cannot write its data to disk.
    Misconfigured,
    /// OOM: no memory left for the command.
    OutOfMemory,
    /// NOREPLICAS: too few replicas for a write.
    NoReplicas,
    /// CLUSTERDOWN: the cluster does not serve this slot.
    ClusterDown,
    /// MOVED: another node serves this slot.
    Moved,
    /// ASK: another node serves this key for now.
    Ask,
    /// TRYAGAIN: the slot is on the move.
    TryAgain,
    /// CROSSSLOT: the keys belong to different slots.
    CrossSlot,
    /// WRONGTYPE: the key holds a value of another type.
    WrongType,
    /// NOSCRIPT: the server does not know the script.
    NoScript,
    /// EXECABORT: the transaction was not executed.
    ExecAbort,
    /// UNBLOCKED: CLIENT UNBLOCK ended a blocking command.
    Unblocked,
    /// Anything else: see `code` and `message`.
    Other,
}

impl ServerError {
    /// True for [`TLS_REQUIRED`].
    #[doc(hidden)]
    #[must_use]
    pub fn requires_tls(&self) -> bool {
        self.message.starts_with(requires_tls!())
    }

    /// Splits the text of an error reply, without its leading `-`, into code and message.
    #[must_use]
    pub fn from_reply(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let (code, message) = text.split_once(' ').unwrap_or((&text, ""));
        Self { code: code.to_owned(), message: message.to_owned() }
    }

    /// The kind of error, from its code.
    #[must_use]
    pub fn kind(&self) -> ServerErrorKind {
        use ServerErrorKind as Kind;
        match self.code.as_str() {
            "NOAUTH" => Kind::NoAuth,
            "WRONGPASS" => Kind::WrongPass,
            "NOPERM" => Kind::NoPerm,
            "NOPROTO" => Kind::NoProto,
            "LOADING" => Kind::Loading,
            "READONLY" => Kind::ReadOnly,
            "MASTERDOWN" => Kind::MasterDown,
            "BUSY" => Kind::Busy,
            "DENIED" => Kind::ProtectedMode,
            "MISCONF" => Kind::Misconfigured,
            "OOM" => Kind::OutOfMemory,
            "NOREPLICAS" => Kind::NoReplicas,
            "CLUSTERDOWN" => Kind::ClusterDown,
            "MOVED" => Kind::Moved,
            "ASK" => Kind::Ask,
            "TRYAGAIN" => Kind::TryAgain,
            "CROSSSLOT" => Kind::CrossSlot,
            "WRONGTYPE" => Kind::WrongType,
            "NOSCRIPT" => Kind::NoScript,
            "EXECABORT" => Kind::ExecAbort,
            "UNBLOCKED" => Kind::Unblocked,
            "ERR" if self.message.starts_with("max number of clients") => Kind::MaxClients,
            _ => Kind::Other,
        }
    }

    /// Whether the same command to the same server may succeed a little later, without any intervention.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        use ServerErrorKind as Kind;
        matches!(
            self.kind(),
            Kind::Loading
                | Kind::MasterDown
                | Kind::Busy
                | Kind::MaxClients
                | Kind::TryAgain
                | Kind::ClusterDown
        )
    }

    /// Whether the command has not run because of the node it was sent to: another node of the cluster answers it, or this one does later.
    #[must_use]
    pub fn is_about_node(&self) -> bool {
        use ServerErrorKind as Kind;
        matches!(
            self.kind(),
            Kind::Moved
                | Kind::Ask
                | Kind::TryAgain
                | Kind::ClusterDown
                | Kind::Loading
                | Kind::MasterDown
                | Kind::ReadOnly
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_replies_have_kinds() {
        let kind = |text: &str| ServerError::from_reply(text.as_bytes()).kind();
        assert_eq!(kind("NOAUTH Authentication required."), ServerErrorKind::NoAuth);
        assert_eq!(kind("LOADING Valkey is loading the dataset in memory"), ServerErrorKind::Loading);
        assert_eq!(kind("READONLY You can't write against a read only replica."), ServerErrorKind::ReadOnly);
        assert_eq!(kind("MASTERDOWN Link with MASTER is down"), ServerErrorKind::MasterDown);
        assert_eq!(kind("ERR max number of clients reached"), ServerErrorKind::MaxClients);
        assert_eq!(kind("DENIED Valkey is running in protected mode"), ServerErrorKind::ProtectedMode);
        assert_eq!(kind("ERR unknown command"), ServerErrorKind::Other);
        assert_eq!(kind(""), ServerErrorKind::Other);
    }

    #[test]
    fn the_text_is_that_of_the_reply() {
        for text in ["ERR no such key", "MYCODE", "ERR", "", "ERR a\r\nb c", "ERR  two blanks"] {
            assert_eq!(ServerError::from_reply(text.as_bytes()).to_string(), text);
        }
    }

    #[test]
    fn only_temporary_conditions_are_transient() {
        let transient = |text: &str| ServerError::from_reply(text.as_bytes()).is_transient();
        assert!(
            transient("LOADING x") && transient("BUSY x") && transient("ERR max number of clients reached")
        );
        assert!(!transient("WRONGPASS x") && !transient("READONLY x") && !transient("ERR x"));
    }

    #[test]
    fn redirections_and_nodes_that_are_not_ready_are_about_the_node() {
        let about_node = |text: &str| ServerError::from_reply(text.as_bytes()).is_about_node();
        for text in [
            "MOVED 1 h:1",
            "ASK 1 h:1",
            "TRYAGAIN x",
            "CLUSTERDOWN x",
            "LOADING x",
            "MASTERDOWN x",
            "READONLY x",
        ] {
            assert!(about_node(text), "{text}");
        }
        for text in ["CROSSSLOT x", "BUSY x", "ERR max number of clients reached", "NOAUTH x", "WRONGTYPE x"]
        {
            assert!(!about_node(text), "{text}");
        }
    }
}
