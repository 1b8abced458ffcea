//! The results of a run, for people and for programs.

mod json;
mod junit;
mod table;

pub use json::json;
pub use junit::junit;
pub use table::Table;

use crate::{Record, Verdict};

/// `N passed, N failed, N not run (why)`.
pub fn summary(records: &[Record]) -> String {
    let count = |word| records.iter().filter(|record| record.verdict.word() == word).count();
    let mut reasons: Vec<&str> = Vec::new();
    for record in records {
        if let Verdict::NotRun(why) = &record.verdict
            && !reasons.contains(&why.as_str())
        {
            reasons.push(why);
        }
    }
    let why = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
    format!("{} passed, {} failed, {} not run{why}", count("passed"), count("failed"), count("not run"))
}

/// Whether at least one case passed, and none failed.
pub fn all_well(records: &[Record]) -> bool {
    let any = |word| records.iter().any(|record| record.verdict.word() == word);
    any("passed") && !any("failed")
}

#[cfg(test)]
mod tests;
