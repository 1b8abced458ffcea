//! CSV: the header and columns of `valkey-benchmark --csv` first, so that its readers work; ours after them.

use std::io::{self, Write};

use super::columns::{COLUMNS, Column, Row, counters};
use crate::measure::{RunInfo, TestResult};

pub(super) fn write_head(out: &mut dyn Write) -> io::Result<()> {
    let names = in_order().into_iter().map(|(name, _)| name.to_owned());
    write_row(out, names.chain(counters(None).map(|(name, _)| format!("{name}_per_request"))))
}

pub(super) fn write_test(
    out: &mut dyn Write,
    run: &RunInfo,
    result: &TestResult,
    digits: usize,
) -> io::Result<()> {
    let row = Row::of(run, result);
    let cells = in_order().into_iter().map(|(_, column)| (column.of)(&row));
    let cells = cells.chain(counters(Some(result)).map(|(_, value)| value));
    write_row(out, cells.map(|value| value.csv(digits)))
}

/// The columns with their names, in their places.
fn in_order() -> Vec<(&'static str, &'static Column)> {
    let mut columns: Vec<_> =
        COLUMNS.iter().filter_map(|column| column.csv.map(|(place, name)| (place, name, column))).collect();
    columns.sort_by_key(|(place, ..)| *place);
    columns.into_iter().map(|(_, name, column)| (name, column)).collect()
}

fn write_row(out: &mut dyn Write, cells: impl Iterator<Item = String>) -> io::Result<()> {
    for (number, cell) in cells.enumerate() {
        let comma = if number == 0 { "" } else { "," };
        write!(out, "{comma}\"{}\"", cell.replace('"', "\"\""))?;
    }
    writeln!(out)
}
