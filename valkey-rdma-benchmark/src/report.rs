//! Results: as tables, lines and CSV, as JSON, as histograms, as a picture, as a page; and what went wrong.
//!
//! Each form is a file here.

mod columns;
mod compare;
mod csv;
mod evidence;
mod faults;
mod file;
pub(crate) mod hdr;
pub(crate) mod html;
pub(crate) mod json;
mod numbers;
mod percentiles;
mod pictures;
mod quiet;
mod sweep;
mod table;

use std::io::{self, Write};

use crate::measure::{RunInfo, TestResult};

pub(crate) use compare::{
    ComparisonTable, write_compare_head, write_comparisons, write_labelled_ratios, write_ratios,
};
pub(crate) use evidence::write_evidence_head;
pub(crate) use faults::write_faults;
pub(crate) use file::write_file;
pub(crate) use percentiles::Percentiles;
pub(crate) use pictures::plot;
pub(crate) use sweep::write_sweep;
pub(crate) use valkey_rdma_program::Style;

/// How results of tests are written to standard output.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Format {
    /// The form.
    pub(crate) form: Form,
    /// Decimal places of latencies in milliseconds.
    pub(crate) precision: u8,
    /// The percentiles of the table.
    pub(crate) percentiles: Percentiles,
}

/// The forms in which results can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Aligned tables with units.
    Table(Style),
    /// One line per test, as `valkey-benchmark -q`.
    Quiet,
    /// valkey-benchmark's CSV columns, ours after them.
    Csv,
}

impl Format {
    /// Writes what is measured, on what and how, where people read it.
    pub(crate) fn write_setup(self, out: &mut dyn Write, run: &RunInfo) -> io::Result<()> {
        match self.form {
            Form::Table(style) => table::write_setup(out, run, style),
            Form::Quiet | Form::Csv => Ok(()),
        }
    }

    /// Writes what comes before the first test.
    pub(crate) fn write_head(self, out: &mut dyn Write, run: &RunInfo) -> io::Result<()> {
        match self.form {
            Form::Table(style) => table::write_head(out, run, style, self.percentiles),
            Form::Quiet => Ok(()),
            Form::Csv => csv::write_head(out),
        }
    }

    /// Writes the result of a test as soon as it has ended.
    pub(crate) fn write_test(
        self,
        out: &mut dyn Write,
        run: &RunInfo,
        result: &TestResult,
    ) -> io::Result<()> {
        let precision = self.precision.into();
        match self.form {
            Form::Table(style) => table::write_test(out, run, result, style, (precision, self.percentiles)),
            Form::Quiet => quiet::write_test(out, result, precision),
            Form::Csv => csv::write_test(out, run, result, precision),
        }
    }

    /// Writes what comes after the last test.
    pub(crate) fn write_tail(self, out: &mut dyn Write, results: &[TestResult]) -> io::Result<()> {
        match self.form {
            Form::Table(style) => table::write_tail(out, results, style),
            Form::Quiet | Form::Csv => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
