//! What went wrong in a test: how often, by kind, and the first few in full.

use std::io::{self, Write};

use super::style::Style;
use crate::result::TestResult;

/// Writes the faults of `result`, or nothing if there are none.
///
/// # Errors
/// Whatever `out` fails with.
pub fn write_faults(out: &mut dyn Write, result: &TestResult, style: Style) -> io::Result<()> {
    let faults = &result.faults;
    if faults.is_empty() {
        return Ok(());
    }
    let kinds: Vec<String> = faults.counts().map(|(kind, count)| format!("{kind} {count}")).collect();
    writeln!(
        out,
        "{} {}: {} wrong ({})",
        style.red("error:"),
        result.test,
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
    Ok(())
}
