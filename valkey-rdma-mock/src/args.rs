//! Arguments read one after the other.

use bytes::Bytes;

use crate::decimal;
use crate::failure::Failure;
use valkey_rdma_resp::integer;

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

    /// What has not been taken yet.
    pub(super) fn rest(&self) -> &'a [Bytes] {
        self.0
    }

    /// Takes the next word if it is `word`, in any case.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let found = self.0.first().is_some_and(|next| next.eq_ignore_ascii_case(word.as_bytes()));
        if found {
            self.0 = &self.0[1..];
        }
        found
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

/// The number in an argument.
pub(super) fn float(text: &[u8]) -> Result<f64, Failure> {
    decimal::parse(text).ok_or(Failure::NOT_A_FLOAT)
}

/// The items that Valkey means by `start` and `stop`, which count from the end if negative. Empty if there are none.
pub(super) fn range(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let signed = i64::try_from(len).unwrap_or(i64::MAX);
    let from_end = |index: i64| if index < 0 { index.saturating_add(signed).max(-1) } else { index };
    let (start, stop) = (from_end(start).max(0), from_end(stop).min(signed - 1));
    if start > stop {
        return 0..0;
    }
    // Both lie between 0 and `len`.
    start as usize..stop as usize + 1
}

/// The item that Valkey means by `index`, which counts from the end if negative.
pub(super) fn position(index: i64, len: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => Some(index).filter(|index| *index < len),
        Err(_) => len.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}

/// A point in time in milliseconds since 1970, from an amount of units, counted from `base`. `None` if Valkey, which keeps it
/// in an `i64`, could not.
pub(super) fn moment(amount: i64, unit_ms: i64, base: i64) -> Option<i64> {
    amount.checked_mul(unit_ms)?.checked_add(base)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_valkeys() {
        for (start, stop, expected) in [
            (0, -1, 0..5),
            (1, 2, 1..3),
            (-2, -1, 3..5),
            (-100, 100, 0..5),
            (3, 1, 0..0),
            (5, 10, 0..0),
            (0, -6, 0..0),
            (i64::MIN, i64::MAX, 0..5),
            (i64::MIN, i64::MIN, 0..0),
        ] {
            assert_eq!(range(start, stop, 5), expected, "{start} {stop}");
        }
        assert_eq!(range(0, -1, 0), 0..0);
    }

    #[test]
    fn positions_count_from_either_end() {
        assert_eq!(position(0, 3), Some(0));
        assert_eq!(position(-3, 3), Some(0));
        assert_eq!(position(3, 3), None);
        assert_eq!(position(-4, 3), None);
        assert_eq!(position(i64::MIN, 3), None);
    }
}
