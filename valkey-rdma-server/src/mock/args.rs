//! Arguments read one after the other.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::failure::Failure;
use crate::integer;

/// Options of a command, taken from the front.
pub(super) struct Options<'a>(&'a [Bytes]);

impl<'a> Options<'a> {
    pub(super) fn new(args: &'a [Bytes]) -> Self {
        Self(args)
    }

    /// The value that belongs to the option just taken.
    pub(super) fn value(&mut self) -> Result<&'a Bytes, Failure> {
        self.next().ok_or(Failure::SYNTAX)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = &'a Bytes;

    fn next(&mut self) -> Option<&'a Bytes> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }
}

/// The integer in an argument or a stored value.
pub(super) fn integer(text: &[u8]) -> Result<i64, Failure> {
    integer::parse(text).ok_or(Failure::NOT_AN_INTEGER)
}

/// `amount` units as milliseconds. `None` if Valkey, which counts milliseconds since 1970 in an `i64`, could not express
/// that time from now.
pub(super) fn milliseconds(amount: i64, unit_ms: i64) -> Option<i64> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let milliseconds = amount.checked_mul(unit_ms)?;
    milliseconds.checked_add(i64::try_from(since_1970.as_millis()).ok()?)?;
    Some(milliseconds)
}

/// A word in lower case, for matching. Too long for any we know: an empty one.
pub(super) fn lowercase(word: &[u8]) -> Lowercase {
    let mut lower = Lowercase { bytes: [0; LONGEST], len: 0 };
    if let Some(target) = lower.bytes.get_mut(..word.len()) {
        target.copy_from_slice(word);
        target.make_ascii_lowercase();
        lower.len = word.len();
    }
    lower
}

/// A short word in lower case, without an allocation.
pub(super) struct Lowercase {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Lowercase {
    pub(super) fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

/// Longer than any command or option of Valkey.
const LONGEST: usize = 32;
