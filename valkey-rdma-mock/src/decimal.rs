//! Floating-point numbers in decimal, as Valkey reads and writes them.

/// Reads a number: decimal, with an exponent or not, or `inf`. Not NaN.
///
/// Source: valkey `src/object.c`, `getDoubleFromObject`. (Valkey's `strtod` also knows hexadecimal numbers.)
pub(super) fn parse(text: &[u8]) -> Option<f64> {
    let text = str::from_utf8(text).ok()?;
    let allowed = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let infinite = unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity");
    if !infinite && !text.bytes().all(allowed) {
        return None;
    }
    text.parse().ok().filter(|number: &f64| !number.is_nan() && (infinite || number.is_finite()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "nan", "1x", " 1", "1 ", "0x10", "1e999", "e", "--1", "infinit"] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse(b"-INF"), Some(f64::NEG_INFINITY));
        assert_eq!(parse(b"+1.5e2"), Some(150.0));
    }
}
