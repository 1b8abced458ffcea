//! [`Reply`]: the answer to a command, independent of the protocol version, and what converts to one.

use std::borrow::Cow;

use bytes::Bytes;

use crate::error::ServerError;
use crate::protocol::MAX_DEPTH;
use crate::value::Value;

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

/// Numbers are integers and doubles, text and bytes are strings, `()` is the status `OK`, `None` is the null reply, and vectors are
/// arrays.
///
/// ```
/// use valkey_rdma_resp::Reply;
///
/// assert_eq!(Reply::from(7), Reply::Integer(7));
/// assert_eq!(Reply::from("text"), Reply::bulk("text"));
/// assert_eq!(Reply::from(()), Reply::OK);
/// assert_eq!(Reply::from(None::<i64>), Reply::Null);
/// assert_eq!(Reply::from(vec!["a", "b"]), Reply::Array(vec![Reply::bulk("a"), Reply::bulk("b")]));
/// ```
impl From<()> for Reply {
    fn from((): ()) -> Self {
        Self::OK
    }
}

macro_rules! integers {
    ($($type:ty),*) => { $(
        impl From<$type> for Reply {
            fn from(number: $type) -> Self {
                Self::Integer(number.into())
            }
        }
    )* };
}

// No `u8`: a vector of them is a string.
integers!(i8, i16, u16, i32, u32, i64);

macro_rules! large_integers {
    ($($type:ty),*) => { $(
        /// Beyond the range of an `i64`: a big number.
        impl From<$type> for Reply {
            fn from(number: $type) -> Self {
                i64::try_from(number).map_or_else(|_| Self::BigNumber(number.to_string().into()), Self::Integer)
            }
        }
    )* };
}

large_integers!(u64, usize, isize);

impl From<f64> for Reply {
    fn from(number: f64) -> Self {
        Self::Double(number)
    }
}

impl From<bool> for Reply {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Self::Bulk(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self::Bulk(text.into())
    }
}

impl From<Cow<'_, str>> for Reply {
    fn from(text: Cow<'_, str>) -> Self {
        Self::from(text.into_owned())
    }
}

impl From<Bytes> for Reply {
    fn from(bytes: Bytes) -> Self {
        Self::Bulk(bytes)
    }
}

impl From<&[u8]> for Reply {
    fn from(bytes: &[u8]) -> Self {
        Self::Bulk(Bytes::copy_from_slice(bytes))
    }
}

impl From<Vec<u8>> for Reply {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bulk(bytes.into())
    }
}

impl<T: Into<Reply>> From<Option<T>> for Reply {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<T: Into<Reply>> From<Vec<T>> for Reply {
    fn from(items: Vec<T>) -> Self {
        Self::Array(items.into_iter().map(Into::into).collect())
    }
}

/// A server's reply, for a proxy. [`Value::Nil`] becomes [`Reply::Null`]: in RESP2 a null string, also where the server sent a null
/// array.
impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        let text = |bytes: Bytes| Cow::Owned(String::from_utf8_lossy(&bytes).into_owned());
        let all = |items: Vec<Value>| items.into_iter().map(Self::from).collect();
        match value {
            Value::Nil => Self::Null,
            Value::Int(number) => Self::Integer(number),
            Value::Double(number) => Self::Double(number),
            Value::Bool(truth) => Self::Bool(truth),
            Value::Simple(bytes) => Self::Simple(text(bytes)),
            Value::Bulk(bytes) => Self::Bulk(bytes),
            Value::Verbatim { format, text } => Self::Verbatim { format, text },
            Value::BigNumber(bytes) => Self::BigNumber(text(bytes)),
            Value::Array(items) => Self::Array(all(items)),
            Value::Set(items) => Self::Set(all(items)),
            Value::Push(items) => Self::Push(all(items)),
            Value::Map(pairs) => {
                Self::Map(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
            }
            Value::Error(error) => error.into(),
        }
    }
}

impl From<ServerError> for Reply {
    fn from(error: ServerError) -> Self {
        Self::Error(error.to_string().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_the_replies_that_say_the_same() {
        assert_eq!(Reply::from(u64::MAX), Reply::BigNumber("18446744073709551615".into()));
        assert_eq!(Reply::from(3_usize), Reply::Integer(3));
        assert_eq!(Reply::from(vec![1_u8, 2]), Reply::bulk(vec![1, 2]), "bytes are one string");
        assert_eq!(Reply::from(vec![Some(1), None]), Reply::Array(vec![Reply::Integer(1), Reply::Null]));
        assert_eq!(Reply::from(vec![Reply::OK]), Reply::Array(vec![Reply::OK]));
        let nested =
            Value::Map(vec![(Value::Simple("k".into()), Value::Array(vec![Value::Nil, Value::Int(1)]))]);
        let expected = vec![(Reply::simple("k"), Reply::Array(vec![Reply::Null, Reply::Integer(1)]))];
        assert_eq!(Reply::from(nested), Reply::Map(expected));
        let refusal = Value::Error(ServerError::from_reply(b"NOSCRIPT"));
        assert_eq!(Reply::from(refusal), Reply::error("NOSCRIPT"));
        assert_eq!((Reply::from(true), Reply::from(0.5)), (Reply::Bool(true), Reply::Double(0.5)));
    }
}
