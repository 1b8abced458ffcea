//! How far a check is, on standard error, if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar with what is done at the moment. It leaves the terminal when it is dropped.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos:>4}/{len} {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Shows a step.
    pub(crate) fn show(&self, done: usize, of: usize, what: &str) {
        self.0.set_length(of as u64);
        self.0.set_position(done as u64);
        self.0.set_message(what.to_owned());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
