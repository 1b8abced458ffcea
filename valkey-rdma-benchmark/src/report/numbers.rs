//! Numbers as people read them in pages and pictures.

/// A rate or a count, short: `950`, `12.5 k`, `3.4 M`.
pub(super) fn short(number: f64) -> String {
    let (number, unit) = match number.abs() {
        1e6.. => (number / 1e6, " M"),
        1e4.. => (number / 1e3, " k"),
        _ => (number, ""),
    };
    let digits = if unit.is_empty() || number.fract().abs() < 1e-9 { 0 } else { 1 };
    format!("{number:.digits$}{unit}")
}

/// Milliseconds with three significant digits.
pub(super) fn ms(number: f64) -> String {
    let digits = match number.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    let text = format!("{number:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::{ms, short};

    #[test]
    fn numbers_are_short() {
        assert_eq!([950.0, 12_500.0, 20_000.0, 3_400_000.0].map(short), ["950", "12.5 k", "20 k", "3.4 M"]);
        assert_eq!([0.05, 0.5, 1.0, 12.34, 250.0].map(ms), ["0.05", "0.5", "1", "12.3", "250"]);
    }
}
