//! What went wrong in a test: how often, by kind, and the first few in full.

use std::io::{self, Write};

use super::Style;
use crate::measure::TestResult;

/// Writes the faults of `result`, or nothing if there are none.
pub(crate) fn write_faults(out: &mut dyn Write, result: &TestResult, style: Style) -> io::Result<()> {
    let faults = &result.tally.faults;
    write_outages(out, result, style)?;
    if faults.is_empty() {
        return Ok(());
    }
    let kinds: Vec<String> = faults.counts().map(|(kind, count)| format!("{kind} {count}")).collect();
    writeln!(
        out,
        "{} {}: {} wrong ({})",
        style.red("error:"),
        result.title,
        faults.total(),
        kinds.join(", ")
    )?;
    for fault in faults.first() {
        writeln!(out, "  {fault}")?;
    }
    let hidden = faults.total() - faults.first().len() as u64;
    if hidden > 0 {
        writeln!(out, "  ... and {hidden} more")?;
    }
    match faults.advice() {
        Some(advice) => writeln!(out, "  {advice}"),
        None => Ok(()),
    }
}

/// Writes when the server was gone.
fn write_outages(out: &mut dyn Write, result: &TestResult, style: Style) -> io::Result<()> {
    for outage in &result.outages {
        let from = outage.from.as_secs_f64();
        write!(out, "{} {}: no connection from {from:.3} s ", style.red("outage:"), result.title)?;
        match outage.to {
            Some(to) => {
                let to = to.as_secs_f64();
                writeln!(out, "to {to:.3} s: {:.3} s", to - from)?;
            }
            None => writeln!(out, "to the end")?,
        }
    }
    if result.lost > 0 {
        writeln!(out, "  {}: {} connections lost", result.title, result.lost)?;
    }
    Ok(())
}
