//! Decimal integers as Valkey reads and writes them: lengths on the wire, and values.

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

#[cfg(test)]
mod tests {
    use super::parse;

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
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
    }
}
