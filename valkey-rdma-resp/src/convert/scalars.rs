//! [`FromValue`](super::FromValue) for numbers, booleans and strings.

use std::str::FromStr;

use bytes::Bytes;

use super::{FromValue, each, unexpected};
use crate::convert::UnexpectedReply;
use crate::encode::double;
use crate::value::Value;

fn integer<T>(value: &Value, wanted: &'static str) -> Result<T, UnexpectedReply>
where
    T: TryFrom<i64> + FromStr,
{
    let number = match value {
        Value::Int(number) => T::try_from(*number).ok(),
        // Every integer up to 2^53 is such a double. Beyond, its digits say which one is meant.
        Value::Double(number) if number.abs() <= 2_f64.powi(53) => {
            (number.fract() == 0.0).then_some(*number as i64).and_then(|number| T::try_from(number).ok())
        }
        Value::Double(number) => double(*number).parse().ok(),
        Value::Bool(truth) => T::try_from(i64::from(*truth)).ok(),
        _ => value.as_str().and_then(|digits| digits.parse().ok()),
    };
    number.map_or_else(|| unexpected(wanted, value), Ok)
}

macro_rules! integers {
    ($($type:ident: $wanted:literal),*) => { $(
        impl FromValue for $type {
            fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
                integer(&value, $wanted)
            }
        }
    )* };
}

integers!(
    i8: "an integer of 8 bits",
    i16: "an integer of 16 bits", u16: "an unsigned integer of 16 bits",
    i32: "an integer of 32 bits", u32: "an unsigned integer of 32 bits",
    i64: "an integer of 64 bits", u64: "an unsigned integer of 64 bits",
    i128: "an integer of 128 bits", u128: "an unsigned integer of 128 bits",
    isize: "an integer", usize: "an unsigned integer"
);

impl FromValue for u8 {
    fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
        integer(&value, "an unsigned integer of 8 bits")
    }

    /// `Vec<u8>` is the bytes of a string.
    fn from_members(value: Value) -> Result<Vec<Self>, UnexpectedReply> {
        match value {
            Value::Array(_) | Value::Set(_) => each(value, "an array"),
            string => Ok(string.convert::<Bytes>()?.to_vec()),
        }
    }
}

macro_rules! floats {
    ($($type:ident),*) => { $(
        impl FromValue for $type {
            fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
                let number = match &value {
                    // An `f32` that a server keeps as a double comes back as it was.
                    Value::Double(number) => Some(*number as Self),
                    // Exact up to 2^53 (an `f32`: 2^24). What a server counts in scores is a double there too.
                    Value::Int(number) => Some(*number as Self),
                    Value::Bool(truth) => Some(Self::from(u8::from(*truth))),
                    _ => value.as_str().and_then(|digits| digits.parse().ok()),
                };
                number.map_or_else(|| unexpected("a number", &value), Ok)
            }
        }
    )* };
}

floats!(f32, f64);

impl FromValue for bool {
    fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
        match &value {
            Value::Bool(truth) => Ok(*truth),
            Value::Int(0) | Value::Nil => Ok(false),
            Value::Int(1) => Ok(true),
            Value::Double(number) if *number == 0.0 => Ok(false),
            Value::Double(number) if *number == 1.0 => Ok(true),
            status if status.is_ok() => Ok(true),
            other => match other.as_bytes() {
                Some(b"1") => Ok(true),
                Some(b"0") => Ok(false),
                _ => unexpected("a truth value", other),
            },
        }
    }
}

impl FromValue for Bytes {
    fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
        Ok(match value {
            Value::Int(number) => number.to_string().into(),
            Value::Double(number) => double(number).into(),
            Value::Bool(truth) => Self::from_static(if truth { b"1" } else { b"0" }),
            Value::Simple(bytes) | Value::Bulk(bytes) | Value::BigNumber(bytes) => bytes,
            Value::Verbatim { text, .. } => text,
            other => return unexpected("a string", &other),
        })
    }
}

impl FromValue for String {
    fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
        let bytes: Bytes = value.convert()?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => unexpected("text in UTF-8", &Value::Bulk(bytes)),
        }
    }
}

impl FromValue for char {
    fn from_value(value: Value) -> Result<Self, UnexpectedReply> {
        let text: String = value.convert()?;
        let mut characters = text.chars();
        match (characters.next(), characters.next()) {
            (Some(one), None) => Ok(one),
            _ => Err(UnexpectedReply::new("one character", format!("a string of {} bytes", text.len()))),
        }
    }
}
