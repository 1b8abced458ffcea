//! Text and numbers, as HTML wants them.

use std::fmt::{self, Display};

/// Text in which nothing is markup.
pub(super) struct Text<T>(pub(super) T);

impl<T: Display> Display for Text<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.to_string().chars() {
            match character {
                '&' => out.write_str("&amp;")?,
                '<' => out.write_str("&lt;")?,
                '>' => out.write_str("&gt;")?,
                '"' => out.write_str("&quot;")?,
                '\'' => out.write_str("&#39;")?,
                other => write!(out, "{other}")?,
            }
        }
        Ok(())
    }
}

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
    use super::{Text, ms, short};

    #[test]
    fn markup_in_a_title_is_text() {
        let title = Text("<script>alert(\"1\" & '2')</script>").to_string();
        assert_eq!(title, "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([950.0, 12_500.0, 20_000.0, 3_400_000.0].map(short), ["950", "12.5 k", "20 k", "3.4 M"]);
        assert_eq!([0.05, 0.5, 1.0, 12.34, 250.0].map(ms), ["0.05", "0.5", "1", "12.3", "250"]);
    }
}
