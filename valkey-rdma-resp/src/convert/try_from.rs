//! `try_into` from a [`Value`].

use std::collections::HashMap;

use bytes::Bytes;

use super::FromValue;
use crate::convert::UnexpectedReply;
use crate::value::Value;

// `try_into` for the most frequent types. A blanket implementation is not possible in Rust; `Value::convert` serves the
// other types.
macro_rules! try_from {
    ($($type:ty),* $(,)?) => { $(
        impl TryFrom<Value> for $type {
            type Error = UnexpectedReply;

            fn try_from(value: Value) -> Result<Self, UnexpectedReply> {
                Self::from_value(value)
            }
        }
    )* };
}

try_from!(
    (), bool, i64, u64, i32, u32, usize, f64, Bytes, String, Option<i64>, Option<u64>, Option<f64>, Option<Bytes>,
    Option<String>, Option<(String, String)>, Vec<String>, Vec<Bytes>, Vec<Option<Bytes>>, Vec<Option<String>>,
    Vec<i64>, Vec<Value>, HashMap<String, String>,
);
