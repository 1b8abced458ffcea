//! [`FromValue`]: from a reply to a Rust type.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, Hash};

use crate::error::ServerError;
use crate::value::Value;

mod fields;
mod scalars;
mod unexpected_reply;

pub use self::fields::Fields;
use self::unexpected_reply::NOTHING;
pub use self::unexpected_reply::UnexpectedReply;

/// A type that a reply converts to, with [`Value::convert`].
///
/// ```
/// use valkey_rdma_resp::Value;
///
/// let visits: i64 = Value::Int(7).convert()?;
/// let name: Option<String> = Value::Nil.convert()?;
/// let best: Vec<(String, f64)> =
///     Value::Map(vec![(Value::Bulk("ann".into()), Value::Double(1.5))]).convert()?;
/// # assert_eq!((visits, name, best), (7, None, vec![("ann".to_owned(), 1.5)]));
/// # Ok::<_, valkey_rdma_resp::UnexpectedReply>(())
/// ```
///
/// | To | From |
/// |---|---|
/// | integers | an integer in range, or its digits in a string; the digits of a double without fraction; a boolean as 1 or 0 |
/// | `f64`, `f32` | a double, an integer, or a number in a string, also `inf`, `-inf` and `nan`; a boolean as 1 or 0 |
/// | `bool` | a boolean; 1 and 0 as integer, double or string; the status `OK`; no value is `false`, as for SET NX. Other numbers and strings are errors |
/// | `()` | anything but an error |
/// | `Bytes`, `Vec<u8>`, `String` | a string of any kind; an integer or double as its digits; a boolean as `1` or `0` |
/// | `char` | a string of one character |
/// | `Option<T>` | no value, or what `T` takes; an empty array or map that `T` does not take is `None`, as HGETALL has for a missing key |
/// | `Vec<T>`, sets | an array or set |
/// | `[T; N]` | what `Vec<T>` takes, with N members; `[u8; N]` is N bytes |
/// | maps, `Vec<(K, V)>` | a map, an array of pairs, or an array of alternating keys and values (RESP2 has no maps) |
/// | tuples of up to 12 | an array of that length; a map with half as many pairs, as CONFIG GET has with RESP3 |
///
/// RESP2 sends doubles and booleans as strings and integers. They convert to the same types from RESP3, and their text is that of RESP2:
/// `1.5`, `1e+21`, `nan`.
///
/// What [`ToArg`](https://docs.rs/valkey-rdma-client/latest/valkey_rdma_client/trait.ToArg.html) writes as an argument converts back to the
/// same value.
///
/// # Types of your own
/// A struct from a hash takes its fields by name: [`Fields`](crate::Fields) has the example. A struct from a pair converts as the pair
/// does, and so do many of them:
///
/// ```
/// use valkey_rdma_resp::{FromValue, UnexpectedReply, Value};
///
/// struct Score {
///     player: String,
///     points: f64,
/// }
///
/// impl FromValue for Score {
///     fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
///         let (player, points) = value.convert()?;
///         Ok(Self { player, points })
///     }
///
///     // ZRANGE WITHSCORES: pairs with RESP3, an array of alternating members and scores with RESP2.
///     fn from_members(value: Value) -> Result<Vec<Self>, UnexpectedReply> {
///         let pairs: Vec<(String, f64)> = value.convert()?;
///         Ok(pairs.into_iter().map(|(player, points)| Self { player, points }).collect())
///     }
/// }
///
/// let resp2 = Value::Array(vec![Value::Bulk("ann".into()), Value::Bulk("1.5".into())]);
/// let scores: Vec<Score> = resp2.convert()?;
/// assert_eq!((scores[0].player.as_str(), scores[0].points), ("ann", 1.5));
/// # Ok::<_, UnexpectedReply>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a reply does not convert to `{Self}`",
    label = "not a type of replies",
    note = "these types do: `String`, `Bytes`, `Vec<u8>`, integers, `f64`, `bool`, `()`, `Value`; `Option`s, vectors, sets, maps and tuples of them",
    note = "`&str` and `&[u8]` do not, because a reply is not kept: use `String` or `Bytes`",
    note = "`!` means that no type was given: write `let () = ...`, or use `command`, which returns the reply as it is",
    note = "implement `FromValue` for types of your own"
)]
pub trait FromValue: Sized {
    /// Converts `value`.
    ///
    /// # Errors
    /// [`UnexpectedReply`] if the value is of another type, or out of range.
    fn from_value(value: Value) -> Result<Self, UnexpectedReply>;

    /// Converts a reply to a vector of this type: the members of an array or set, one by one. Only pairs, which may come as a map,
    /// and bytes, which come as a string, replace this.
    ///
    /// # Errors
    /// Same as [`from_value`](Self::from_value), for the first member that does not convert.
    fn from_members(value: Value) -> Result<Vec<Self>, UnexpectedReply> {
        each(value, "an array")
    }
}

impl Value {
    /// Converts to any type that [`FromValue`] knows, collections included.
    ///
    /// # Errors
    /// [`UnexpectedReply`] if the value is of another type, or out of range.
    pub fn convert<T: FromValue>(self) -> Result<T, UnexpectedReply> {
        T::from_value(self)
    }

    /// Describes the value in a few words for an error text. Strings are not quoted: errors get into logs, and values may
    /// be secret.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Nil => NOTHING.to_owned(),
            Self::Int(number) => format!("the integer {number}"),
            Self::Double(number) => format!("the double {number}"),
            Self::Bool(truth) => format!("the boolean {truth}"),
            Self::Array(items) => format!("an array of {}", items.len()),
            Self::Set(items) => format!("a set of {}", items.len()),
            Self::Push(items) => format!("a push message of {}", items.len()),
            Self::Map(pairs) => format!("a map of {}", pairs.len()),
            Self::Error(error) => format!("the error \"{error}\""),
            Self::Simple(bytes) => format!("a status of {} bytes", bytes.len()),
            Self::Bulk(bytes) | Self::Verbatim { text: bytes, .. } => {
                format!("a string of {} bytes", bytes.len())
            }
            Self::BigNumber(digits) => format!("a number of {} digits", digits.len()),
        }
    }
}

fn unexpected<T>(wanted: &'static str, got: &Value) -> Result<T, UnexpectedReply> {
    Err(UnexpectedReply::new(wanted, got.describe()))
}

/// Converts one pair of a map. An error says which one it is: by its key, if the value does not convert.
fn pair<K: FromValue, V: FromValue>(
    (key_at, key): (usize, Value),
    (value_at, value): (usize, Value),
) -> Result<(K, V), UnexpectedReply> {
    // First, so that the key is still there to be named.
    let value = V::from_value(value).map_err(|error| error.within_pair(value_at, &key))?;
    Ok((member(key_at, key)?, value))
}

/// Converts one member. An error says which one it is.
fn member<T: FromValue>(index: usize, value: Value) -> Result<T, UnexpectedReply> {
    T::from_value(value).map_err(|error| error.within(index))
}

/// Converts all members of an array or set.
fn each<T: FromValue, C: FromIterator<T>>(value: Value, wanted: &'static str) -> Result<C, UnexpectedReply> {
    members(value, wanted)?.into_iter().enumerate().map(|(index, value)| member(index, value)).collect()
}

fn members(value: Value, wanted: &'static str) -> Result<Vec<Value>, UnexpectedReply> {
    match value {
        Value::Array(items) | Value::Set(items) | Value::Push(items) => Ok(items),
        other => unexpected(wanted, &other),
    }
}

/// Converts pairs from any of the forms that servers send.
fn pairs<K: FromValue, V: FromValue>(value: Value) -> Result<Vec<(K, V)>, UnexpectedReply> {
    let wanted = "keys and values";
    let items = match value {
        Value::Map(pairs) => {
            let pairs = pairs.into_iter().enumerate();
            return pairs.map(|(at, (key, value))| pair((at, key), (at, value))).collect();
        }
        other => members(other, wanted)?,
    };
    if items.iter().all(|item| matches!(item, Value::Array(pair) if pair.len() == 2)) {
        let pairs = items.into_iter().enumerate().map(|(at, item)| {
            let (key, value) = item.convert()?;
            pair((0, key), (1, value)).map_err(|error| error.within(at))
        });
        return pairs.collect();
    }
    if items.len() % 2 == 1 {
        return unexpected(wanted, &Value::Array(items));
    }
    let mut pairs = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter().enumerate();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        pairs.push(pair(key, value)?);
    }
    Ok(pairs)
}

impl FromValue for Value {
    fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
        Ok(value)
    }
}

impl FromValue for () {
    fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
        match value {
            Value::Error(_) => unexpected("no error", &value),
            _ => Ok(()),
        }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
        if value.is_nil() {
            return Ok(None);
        }
        // The hash of a key that does not exist has no fields. Collections stay what they are: empty.
        let has_nothing = match &value {
            Value::Array(items) | Value::Set(items) => items.is_empty(),
            Value::Map(pairs) => pairs.is_empty(),
            _ => false,
        };
        match value.convert() {
            Err(_) if has_nothing => Ok(None),
            converted => converted.map(Some),
        }
    }
}

impl FromValue for Result<Value, ServerError> {
    fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
        Ok(match value {
            Value::Error(error) => Err(error),
            value => Ok(value),
        })
    }
}

/// `Vec<u8>` is the bytes of a string, all others are members.
impl<T: FromValue> FromValue for Vec<T> {
    fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
        T::from_members(value)
    }
}

impl<T: FromValue, const N: usize> FromValue for [T; N] {
    fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
        let got = value.describe();
        let members: Vec<T> = value.convert()?;
        members.try_into().map_err(|_| UnexpectedReply::new("as many members as the type has", got))
    }
}

impl<T: FromValue + Eq + Hash, S: BuildHasher + Default> FromValue for HashSet<T, S> {
    fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
        each(value, "a set")
    }
}

impl<T: FromValue + Ord> FromValue for BTreeSet<T> {
    fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
        each(value, "a set")
    }
}

impl<K: FromValue + Eq + Hash, V: FromValue, S: BuildHasher + Default> FromValue for HashMap<K, V, S> {
    fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
        Ok(pairs(value)?.into_iter().collect())
    }
}

impl<K: FromValue + Ord, V: FromValue> FromValue for BTreeMap<K, V> {
    fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
        Ok(pairs(value)?.into_iter().collect())
    }
}

/// The members of an array, or of a map as RESP2 sends it: keys and values in turn.
fn members_or_pairs(value: Value, wanted: &'static str) -> Result<Vec<Value>, UnexpectedReply> {
    match value {
        Value::Map(pairs) => Ok(pairs.into_iter().flat_map(|(key, value)| [key, value]).collect()),
        other => members(other, wanted),
    }
}

impl<A: FromValue, B: FromValue> FromValue for (A, B) {
    fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
        match <[Value; 2]>::try_from(members_or_pairs(value, "a pair")?) {
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
                match <[Value; [$(stringify!($name)),*].len()]>::try_from(members_or_pairs(value, $wanted)?) {
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

#[cfg(test)]
mod tests;
