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

/// Adds two decimal numbers as `INCRBYFLOAT` does, and writes the sum with at most 17 digits after the point and no zeros at the end.
///
/// Valkey adds in 80-bit floating point, which hides the binary rounding of common decimals: 0.1 + 0.2 is 0.3. Fixed-point
/// numbers do the same; sums that do not fit are added as `f64`. `None`: the sum is infinite.
pub(super) fn add(one: &[u8], other: &[u8]) -> Option<Result<String, Overflow>> {
    if let (Some(one), Some(other)) = (fixed(one), fixed(other))
        && let Some(sum) = one.checked_add(other)
    {
        return Some(Ok(write_fixed(sum)));
    }
    let sum = parse(one)? + parse(other)?;
    if !sum.is_finite() {
        return Some(Err(Overflow));
    }
    let text = format!("{sum:.17}");
    Some(Ok(trimmed(&text).to_owned()))
}

/// A sum that is not a finite number.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overflow;

const DIGITS: u32 = 17;
const ONE: i128 = 10_i128.pow(DIGITS);

/// A plain decimal number in units of 10^-17.
fn fixed(text: &[u8]) -> Option<i128> {
    let text = str::from_utf8(text).ok()?;
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (digits, power) = match digits.split_once(['e', 'E']) {
        Some((digits, power)) => (digits, power.parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let digits = [whole, fraction].concat();
    if digits.is_empty() || digits.len() > 30 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // What the last digit counts, in powers of ten of the unit.
    let scale =
        i32::try_from(DIGITS).ok()?.checked_add(power)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let value = digits.parse::<i128>().ok()?.checked_mul(10_i128.checked_pow(u32::try_from(scale).ok()?)?)?;
    Some(if negative { -value } else { value })
}

fn write_fixed(value: i128) -> String {
    let sign = if value < 0 { "-" } else { "" };
    let value = value.unsigned_abs();
    let one = ONE.unsigned_abs();
    trimmed(&format!("{sign}{}.{:017}", value / one, value % one)).to_owned()
}

/// Without zeros after the last digit that counts.
fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_what_people_expect() {
        for (one, other, sum) in [
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("-0.5", "0.25", "-0.25"),
            ("3", "1.10000000000000001", "4.10000000000000001"),
            ("0", "0", "0"),
        ] {
            assert_eq!(add(one.as_bytes(), other.as_bytes()), Some(Ok(sum.to_owned())));
        }
        assert_eq!(add(b"inf", b"1"), Some(Err(Overflow)));
        assert_eq!(add(b"x", b"1"), None);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "nan", "1x", " 1", "1 ", "0x10", "1e999", "e", "--1", "infinit"] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse(b"-INF"), Some(f64::NEG_INFINITY));
        assert_eq!(parse(b"+1.5e2"), Some(150.0));
    }
}
