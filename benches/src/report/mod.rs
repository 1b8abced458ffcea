//! Results as text: a table, one line per test, or CSV; and what went wrong.

mod csv;
mod demo;
mod faults;
mod quiet;
mod story;
mod style;
mod table;

use std::io::{self, Write};

use crate::result::{RunInfo, TestResult};

pub use demo::{write_demo, write_demo_faults};
pub use faults::write_faults;
pub use story::story;
pub use style::Style;

/// The forms in which results can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Aligned tables with units.
    Table(Style),
    /// One line per test, as `valkey-benchmark -q`.
    Quiet,
    /// valkey-benchmark's CSV columns, ours after them.
    Csv,
}

impl Format {
    /// Writes what comes before the first test.
    ///
    /// # Errors
    /// Whatever `out` fails with.
    pub fn write_head(self, out: &mut dyn Write, run: &RunInfo) -> io::Result<()> {
        match self {
            Format::Table(style) => table::write_head(out, run, style),
            Format::Quiet => Ok(()),
            Format::Csv => csv::write_head(out),
        }
    }

    /// Writes the result of a test as soon as it has ended.
    ///
    /// # Errors
    /// Whatever `out` fails with.
    pub fn write_test(self, out: &mut dyn Write, run: &RunInfo, result: &TestResult) -> io::Result<()> {
        match self {
            Format::Table(style) => table::write_test(out, run, result, style),
            Format::Quiet => quiet::write_test(out, result),
            Format::Csv => csv::write_test(out, run, result),
        }
    }

    /// Writes what comes after the last test.
    ///
    /// # Errors
    /// Whatever `out` fails with.
    pub fn write_tail(self, out: &mut dyn Write, results: &[TestResult]) -> io::Result<()> {
        match self {
            Format::Table(style) => table::write_tail(out, results, style),
            Format::Quiet | Format::Csv => Ok(()),
        }
    }
}

/// Milliseconds, the unit of all latencies that are shown.
fn millis(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests;
