//! The report for programs.

use serde_json::{Value, json};

use crate::{Record, rule};

/// Shape: `{"subject", "passed", "failed", "not_run", "cases": [{"id", "clause", "rule", "stimulus", "expected", "verdict",
/// "detail", "seconds", "evidence"}]}`, times in seconds.
pub fn json(subject: &str, records: &[Record]) -> Value {
    let count = |word| records.iter().filter(|record| record.verdict.word() == word).count();
    let cases: Vec<Value> = records
        .iter()
        .map(|record| {
            json!({
                "id": record.id,
                "clause": record.clause,
                "rule": rule(record.clause),
                "stimulus": record.stimulus,
                "expected": record.expected,
                "verdict": record.verdict.word(),
                "detail": record.verdict.detail(),
                "seconds": record.elapsed.as_secs_f64(),
                "evidence": record.evidence,
            })
        })
        .collect();
    json!({
        "subject": subject,
        "passed": count("passed"),
        "failed": count("failed"),
        "not_run": count("not run"),
        "cases": cases,
    })
}
