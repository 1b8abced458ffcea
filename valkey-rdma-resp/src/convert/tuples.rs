//! [`FromValue`] for tuples.

use super::{FromValue, member, pairs, unexpected};
use crate::unexpected_reply::UnexpectedReply;
use crate::value::Value;

/// The members of an array, or of a map as RESP2 sends it: keys and values in turn.
fn members(value: Value, wanted: &'static str) -> Result<Vec<Value>, UnexpectedReply> {
    match value {
        Value::Map(pairs) => Ok(pairs.into_iter().flat_map(|(key, value)| [key, value]).collect()),
        other => super::members(other, wanted),
    }
}

impl<A: FromValue, B: FromValue> FromValue for (A, B) {
    fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
        match <[Value; 2]>::try_from(members(value, "a pair")?) {
            Ok([a, b]) => Ok((member(0, a)?, member(1, b)?)),
            Err(items) => unexpected("a pair", &Value::Array(items)),
        }
    }

    fn from_members(value: Value) -> Result<Vec<Self>, UnexpectedReply> {
        pairs(value)
    }
}

macro_rules! tuples {
    ($($wanted:literal: $($type:ident $name:ident $index:literal),*;)*) => { $(
        impl<$($type: FromValue),*> FromValue for ($($type,)*) {
            fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
                match <[Value; [$(stringify!($name)),*].len()]>::try_from(members(value, $wanted)?) {
                    Ok([$($name),*]) => Ok(($(member($index, $name)?,)*)),
                    Err(items) => unexpected($wanted, &Value::Array(items)),
                }
            }
        }
    )* };
}

tuples! {
    "an array of 1": A a 0;
    "an array of 3": A a 0, B b 1, C c 2;
    "an array of 4": A a 0, B b 1, C c 2, D d 3;
    "an array of 5": A a 0, B b 1, C c 2, D d 3, E e 4;
    "an array of 6": A a 0, B b 1, C c 2, D d 3, E e 4, F f 5;
    "an array of 7": A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6;
    "an array of 8": A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7;
    "an array of 9": A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8;
    "an array of 10": A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8, J j 9;
    "an array of 11": A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8, J j 9, K k 10;
    "an array of 12": A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8, J j 9, K k 10, L l 11;
}
