//! The results of a run, for people and for programs.

mod json;
mod junit;
mod table;

pub use json::json;
pub use junit::junit;
pub use table::Table;

use crate::{Record, Verdict};

/// `N passed, N failed, N known to fail, N not run (why)`.
pub fn summary(records: &[Record]) -> String {
    let count = |word| records.iter().filter(|record| record.word() == word).count();
    let mut reasons: Vec<&str> = Vec::new();
    for record in records {
        if let Verdict::NotRun(why) = &record.verdict
            && !reasons.contains(&why.as_str())
        {
            reasons.push(why);
        }
    }
    let why = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
    let known = match count("known") {
        0 => String::new(),
        known => format!("{known} known to fail, "),
    };
    format!(
        "{} passed, {} failed, {known}{} not run{why}",
        count("passed"),
        count("failed"),
        count("not run")
    )
}

/// Whether at least one case was run.
pub fn any_ran(records: &[Record]) -> bool {
    records.iter().any(|record| !matches!(record.verdict, Verdict::NotRun(_)))
}

/// Whether no case failed but those that a baseline names.
pub fn all_well(records: &[Record]) -> bool {
    !records.iter().any(Record::is_new_failure)
}

#[cfg(test)]
mod tests;
