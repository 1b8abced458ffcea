//! Decimal integers as Valkey reads and writes them: lengths on the wire, and values.

use crate::error::RespError;

/// Parses a decimal integer with exactly the grammar that Valkey accepts: an optional `-`, no leading zero, no blanks,
/// nothing after the last digit. `None` for anything else, and for numbers beyond an `i64`.
///
/// Source: valkey `src/util.c`, `string2ll`.
#[inline]
#[must_use]
pub fn parse(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    // 18 digits always fit.
    if digits.len() <= 18 {
        let mut value: i64 = 0;
        for digit in digits {
            let digit = digit.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            value = value * 10 + i64::from(digit);
        }
        return Some(if negative { -value } else { value });
    }
    // Accumulate negatively, because i64::MIN has no positive counterpart.
    let mut value: i64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// Parses an integer of a reply. RESP allows a `+` there.
#[inline]
#[must_use]
pub fn parse_reply(text: &[u8]) -> Option<i64> {
    parse(text.strip_prefix(b"+").unwrap_or(text))
}

/// Parses the length of a string or the number of members of an aggregate in a reply.
///
/// # Errors
/// [`RespError::BadLength`] if it is not a number from 0 to `limit`.
#[inline]
pub fn parse_length(text: &[u8], limit: u64) -> Result<usize, RespError> {
    parse(text)
        .and_then(|number| u64::try_from(number).ok())
        .filter(|number| *number <= limit)
        .and_then(|number| usize::try_from(number).ok())
        .ok_or_else(|| RespError::bad_length(text, limit))
}

#[cfg(test)]
mod tests {
    use super::{parse, parse_length, parse_reply};

    #[test]
    fn the_whole_range_is_read() {
        assert_eq!(parse(b"0"), Some(0));
        assert_eq!(parse(b"-1"), Some(-1));
        assert_eq!(parse(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse(b"-9223372036854775808"), Some(i64::MIN));
    }

    #[test]
    fn what_valkey_refuses_is_refused() {
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            " 1",
            "1 ",
            "1.0",
            "0x1",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
            "1x",
            "-1-",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn lengths_have_a_limit_and_replies_may_have_a_plus() {
        assert_eq!(parse_length(b"10", 10), Ok(10));
        assert!(parse_length(b"11", 10).is_err());
        assert!(parse_length(b"+1", 10).is_err());
        assert_eq!(parse_reply(b"+7"), Some(7));
        assert_eq!(parse_reply(b"++7"), None);
    }
}
