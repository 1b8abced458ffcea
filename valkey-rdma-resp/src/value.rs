//! [`Value`]: a reply, in terms common to RESP2 and RESP3.

use bytes::Bytes;

use crate::error::ServerError;

/// A reply, or a part of one: all types of RESP3, attributes apart.
///
/// Byte strings are slices of the connection's receive buffer, not copies. A small value that is stored for long keeps that
/// whole buffer alive; copy it ([`Bytes::copy_from_slice`]) if memory matters.
///
/// Under RESP2 only [`Nil`](Self::Nil), [`Int`](Self::Int), [`Simple`](Self::Simple), [`Bulk`](Self::Bulk),
/// [`Array`](Self::Array) and [`Error`](Self::Error) occur.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value: RESP3 null, RESP2 null bulk string and null array.
    Nil,
    /// A signed 64-bit integer.
    Int(i64),
    /// A floating-point number; infinite and not-a-number are possible.
    Double(f64),
    /// A truth value.
    Bool(bool),
    /// A short status line, such as `OK`.
    Simple(Bytes),
    /// A binary-safe string: what GET returns.
    Bulk(Bytes),
    /// Text for people, such as INFO's.
    Verbatim {
        /// How to show it: `txt` is plain text, `mkd` is Markdown.
        format: [u8; 3],
        /// The text.
        text: Bytes,
    },
    /// An integer too large for 64 bits, as decimal digits.
    BigNumber(Bytes),
    /// A sequence.
    Array(Vec<Value>),
    /// Key-value pairs in the server's order; keys may repeat.
    Map(Vec<(Value, Value)>),
    /// Members in the server's order.
    Set(Vec<Value>),
    /// An out-of-band message.
    Push(Vec<Value>),
    /// An error reply, on its own or inside an aggregate as in the reply to EXEC. (The client returns a reply that is an error
    /// as a whole as an `Err`.)
    Error(ServerError),
}

impl Value {
    /// The bytes of a string of any kind: simple, bulk, verbatim or big number.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Simple(bytes)
            | Self::Bulk(bytes)
            | Self::Verbatim { text: bytes, .. }
            | Self::BigNumber(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Same as [`as_bytes`](Self::as_bytes), but owned, without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Option<Bytes> {
        match self {
            Self::Simple(bytes)
            | Self::Bulk(bytes)
            | Self::Verbatim { text: bytes, .. }
            | Self::BigNumber(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The text of a string of any kind, if it is UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        self.as_bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// The number of an [`Int`](Self::Int). Strings are not parsed.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The members of an array, set or push message.
    #[must_use]
    pub fn as_slice(&self) -> Option<&[Value]> {
        match self {
            Self::Array(items) | Self::Set(items) | Self::Push(items) => Some(items),
            _ => None,
        }
    }

    /// The pairs of a [`Map`](Self::Map).
    #[must_use]
    pub fn as_map(&self) -> Option<&[(Value, Value)]> {
        match self {
            Self::Map(pairs) => Some(pairs),
            _ => None,
        }
    }

    /// Whether there is no value.
    #[must_use]
    pub fn is_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }

    /// Whether this is the status `OK`.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Simple(status) if &status[..] == b"OK")
    }
}
