//! A sweep as a table: what happens at each rate.

use std::io::{self, Write};

use valkey_rdma_program::millis;

use super::Style;
use super::columns::{COLUMNS, Column, Row};
use crate::measure::{RunInfo, Sweep};

/// The columns.
const SHOWN: [&str; 7] =
    ["intended/s", "requests/s", "p50 ms", "p99 ms", "service p50", "service p99", "errors"];

/// When a rate is good.
pub(super) fn rule(sweep: &Sweep) -> String {
    let Some(limit) = sweep.limit.map(millis) else { return "no rate was tried".to_owned() };
    let behind = Sweep::MOST_BEHIND * 100.0;
    let knee = if sweep.targeted { "" } else { " (the knee: 5 times that of the lightest load)" };
    format!("good: no errors, at most {behind:.0} % behind, p99 within {limit:.3} ms{knee}")
}

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
        writeln!(out, "{:12}{} {:>8}", "", cells.collect::<String>(), step.verdict.name())?;
    }
    let why = rule(sweep);
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
