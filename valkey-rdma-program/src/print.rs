//! Standard output.

use std::io::{self, Write};

/// Writes to standard output. A reader that has seen enough, such as `head`, changes nothing about what the program does.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
