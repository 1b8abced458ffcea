//! A sweep as a table: what happens at each rate.

use std::io::{self, Write};

use valkey_rdma_program::millis;

use super::Style;
use super::columns::{COLUMNS, Column, Row};
use crate::measure::{RunInfo, Sweep};

/// The columns.
const SHOWN: [&str; 7] =
    ["intended/s", "requests/s", "p50 ms", "p99 ms", "service p50", "service p99", "errors"];

/// Writes all rates that were tried, in rising order, and the best one.
pub(crate) fn write_sweep(out: &mut dyn Write, run: &RunInfo, sweep: &Sweep, style: Style) -> io::Result<()> {
    let columns: Vec<&Column> = COLUMNS.iter().filter(|column| SHOWN.contains(&column.head)).collect();
    let heads = columns.iter().map(|column| format!(" {:>12}", column.head)).collect::<String>();
    writeln!(out, "{}", style.bold(format!("{:12}{heads}", sweep.title)))?;
    let mut steps: Vec<_> = sweep.steps.iter().collect();
    steps.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    for step in steps {
        let row = Row::of(run, &step.result);
        let cells = columns.iter().map(|column| format!(" {:>12}", (column.of)(&row).cell(3)));
        let verdict = if step.good { "good" } else { "too slow" };
        writeln!(out, "{:12}{} {verdict:>8}", "", cells.collect::<String>())?;
    }
    let why = match (sweep.limit.map(millis), sweep.targeted) {
        (Some(limit), true) => format!("p99 within {limit:.3} ms"),
        (Some(limit), false) => {
            format!("the knee: p99 within {limit:.3} ms, 5 times that of the lightest load")
        }
        (None, _) => "no rate was tried".to_owned(),
    };
    match sweep.best() {
        Some(best) => writeln!(
            out,
            "{}highest good rate: {}{:.0} requests/s ({why}); closed loop: {:.0} requests/s\n",
            if sweep.interrupted { "interrupted; " } else { "" },
            if sweep.is_open_ended() { "at least " } else { "" },
            best.rate,
            sweep.closed.rate()
        ),
        None if sweep.interrupted => writeln!(
            out,
            "interrupted before a good rate was found; closed loop: {:.0} requests/s\n",
            sweep.closed.rate()
        ),
        None => writeln!(
            out,
            "no rate was good ({why}); closed loop: {:.0} requests/s, p99 {:.3} ms\n",
            sweep.closed.rate(),
            millis(sweep.closed.latencies().quantile(0.99))
        ),
    }
}
