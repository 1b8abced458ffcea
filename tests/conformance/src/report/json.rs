//! The report for programs.

use serde_json::{Value, json};

use crate::{Record, basis, level, rule};

/// Shape: `{"subject", "passed", "failed", "known", "not_run", "cases": [{"id", "clause", "rule", "level", "basis", "stimulus", "expected", "verdict",
/// "detail", "known", "seconds", "evidence"}]}`, times in seconds. `failed` counts without those that a baseline names; `known` counts these.
pub fn json(subject: &str, records: &[Record]) -> Value {
    let count = |word| records.iter().filter(|record| record.word() == word).count();
    let cases: Vec<Value> = records
        .iter()
        .map(|record| {
            json!({
                "id": record.id,
                "clause": record.clause,
                "rule": rule(record.clause),
                "level": level(record.clause),
                "basis": basis(record.clause),
                "stimulus": record.stimulus,
                "expected": record.expected,
                "verdict": record.verdict.word(),
                "detail": record.verdict.detail(),
                "known": record.known,
                "seconds": record.elapsed.as_secs_f64(),
                "evidence": record.evidence,
            })
        })
        .collect();
    json!({
        "subject": subject,
        "passed": count("passed"),
        "failed": count("failed"),
        "known": count("known"),
        "not_run": count("not run"),
        "cases": cases,
    })
}
