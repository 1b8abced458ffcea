//! [`printable`]: texts of other programs on a terminal.

use std::fmt::{self, Write};

/// A text that another program may have written, such as a server's error, with its control characters escaped: they could move the
/// cursor, or rewrite what was printed before.
///
/// ```
/// use valkey_rdma_program::printable;
///
/// assert_eq!(printable("ERR \x1b[2Jcan't").to_string(), r"ERR \u{1b}[2Jcan't");
/// ```
#[must_use]
pub fn printable(text: &str) -> impl fmt::Display {
    Printable(text)
}

struct Printable<'a>(&'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char.is_control() {
            true => write!(f, "{}", char.escape_default()),
            false => f.write_char(char),
        })
    }
}
