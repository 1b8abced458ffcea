//! [`Reply`]: the answer to a command, independent of the protocol version.

use std::borrow::Cow;

use bytes::Bytes;

use crate::limits::MAX_DEPTH;

/// The answer to a command. RESP3 has a type for each variant. RESP2 has fewer types; the variants say what is sent there,
/// which is what Valkey sends.
///
/// Replies may be nested up to [`MAX_DEPTH`] lists deep, with [`Sequence`](Self::Sequence)s counted. What lies deeper is sent as
/// an error. Dropping a reply is recursive: from about 10 000 levels on, it overflows the 2 MiB stack of a thread and ends the
/// process, so limit the depth if a client decides about it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// A short status such as `OK`. A line break in it is sent as a blank.
    Simple(Cow<'static, str>),
    /// An error: a code, a blank and a text, for example `ERR syntax error`. A line break in it is sent as a blank.
    Error(Cow<'static, str>),
    /// A signed integer.
    Integer(i64),
    /// A binary-safe string. Strings of at least 16 KiB are sent without a copy.
    Bulk(Bytes),
    /// No value. RESP2: a null bulk string.
    Null,
    /// No value where an array is expected. RESP2: a null array; RESP3: the same null as [`Null`](Self::Null).
    NullArray,
    /// A list of replies.
    Array(Vec<Reply>),
    /// Pairs of key and value, in this order. RESP2: an array of twice the length.
    Map(Vec<(Reply, Reply)>),
    /// An unordered collection. RESP2: an array.
    Set(Vec<Reply>),
    /// A floating-point number. RESP2: a bulk string.
    Double(f64),
    /// A truth value. RESP2: the integer 1 or 0.
    Bool(bool),
    /// A decimal integer of any length. RESP2: a bulk string.
    BigNumber(Cow<'static, str>),
    /// Text for people. RESP2: a bulk string.
    Verbatim {
        /// Three characters: `txt` or `mkd`.
        format: [u8; 3],
        /// The text.
        text: Bytes,
    },
    /// An out-of-band message. RESP2: an array.
    Push(Vec<Reply>),
    /// Several replies to one command, in this order.
    ///
    /// Clients match replies to commands by their order. If this is empty, or has more than one reply that is no
    /// [`Push`](Self::Push) in RESP3, the client takes each later reply for that of another command: the wrong data for a
    /// question, without an error. Use it only where the command's documentation says so, such as `SUBSCRIBE` and
    /// `CLIENT REPLY`.
    Sequence(Vec<Reply>),
}

impl Reply {
    /// Whether it contains other replies.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self, Self::Array(_) | Self::Map(_) | Self::Set(_) | Self::Push(_) | Self::Sequence(_))
    }

    /// Approximate size in bytes, in memory and on the wire. What is nested too deeply to be sent does not count.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        self.memory_size_at(0)
    }

    fn memory_size_at(&self, depth: usize) -> usize {
        if depth > MAX_DEPTH {
            return 0;
        }
        let size = |inner: &Self| inner.memory_size_at(depth + 1);
        size_of::<Self>()
            + match self {
                Self::Simple(text) | Self::Error(text) | Self::BigNumber(text) => text.len(),
                Self::Bulk(bytes) | Self::Verbatim { text: bytes, .. } => bytes.len(),
                Self::Array(items) | Self::Set(items) | Self::Push(items) | Self::Sequence(items) => {
                    items.iter().map(size).sum()
                }
                Self::Map(pairs) => pairs.iter().map(|(key, value)| size(key) + size(value)).sum(),
                Self::Integer(_) | Self::Null | Self::NullArray | Self::Double(_) | Self::Bool(_) => 0,
            }
    }

    /// The status `OK`.
    pub const OK: Self = Self::Simple(Cow::Borrowed("OK"));

    /// A status such as `PONG`.
    pub fn simple(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Simple(text.into())
    }

    /// An error with its code, for example `ERR syntax error`.
    pub fn error(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Error(text.into())
    }

    /// A list of values that convert to replies.
    pub fn array<T: Into<Self>>(items: impl IntoIterator<Item = T>) -> Self {
        Self::Array(items.into_iter().map(Into::into).collect())
    }

    /// Pairs of keys and values that convert to replies.
    pub fn map<K: Into<Self>, V: Into<Self>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::Map(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    /// A binary-safe string.
    pub fn bulk(bytes: impl Into<Bytes>) -> Self {
        Self::Bulk(bytes.into())
    }
}
