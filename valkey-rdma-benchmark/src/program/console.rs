//! [`Console`]: where a run writes.

use std::io::Write;

use crate::report::{Format, Style};

/// Where a run writes.
pub(crate) struct Console<'a> {
    /// Results.
    pub(crate) out: &'a mut dyn Write,
    /// Their form.
    pub(crate) format: Format,
    /// Whether comparisons and sweeps have colour.
    pub(crate) style: Style,
    /// What went wrong, and what the user should know.
    pub(crate) err: &'a mut dyn Write,
    /// Whether that has colour.
    pub(crate) err_style: Style,
}

impl Console<'_> {
    /// Writes a line about what goes on.
    pub(crate) fn say(&mut self, text: &str) {
        // A reader that has gone away must not end a wait.
        let _ = writeln!(self.err, "{text}");
    }
}
