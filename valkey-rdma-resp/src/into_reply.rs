//! From Rust types to a [`Reply`].

use std::borrow::Cow;

use bytes::Bytes;

use crate::reply::Reply;
use crate::server_error::ServerError;
use crate::value::Value;

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
