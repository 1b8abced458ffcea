//! [`ProtocolError`]: the server sent something that is not a reply.

use crate::protocol::Protocol;

/// The server sent something that is not a RESP reply. Nothing after it in the stream has a meaning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
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

impl ProtocolError {
    /// Reports `text`, which was sent as a length, as a [`BadLength`](Self::BadLength).
    #[cold]
    #[must_use]
    pub fn bad_length(text: &[u8], limit: u64) -> Self {
        let shown = &text[..text.len().min(32)];
        Self::BadLength { text: String::from_utf8_lossy(shown).into_owned(), limit }
    }
}
