//! Text within markup, and how wide it is.

use std::fmt::{self, Display};

/// Text in which nothing is markup, in HTML and in SVG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Escaped<T>(pub T);

impl<T: Display> Display for Escaped<T> {
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

/// Width of a text of this size, in a wide font: readers have different ones.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.64
}

#[cfg(test)]
mod tests {
    use super::Escaped;

    #[test]
    fn markup_in_a_title_is_text() {
        let title = Escaped("<script>alert(\"1\" & '2')</script>").to_string();
        assert_eq!(title, "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;");
    }
}
