//! A baseline: the cases that a subject is known to fail.

use crate::{Record, Verdict};

/// Cases that are known to fail, each with the reason.
///
/// A file has one case a line: its name, then the reason. Text after `#` at the begin of a line is a comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known(Vec<(String, String)>);

impl Known {
    /// Reads a baseline. Every name must be one of `cases`.
    ///
    /// # Errors
    /// A text for people, with the number of the line.
    pub fn read(text: &str, cases: &[&str]) -> Result<Self, String> {
        let mut known = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, reason) = line.split_once(char::is_whitespace).unwrap_or((line, "known"));
            if !cases.contains(&name) {
                return Err(format!("line {}: no case is called {name:?}: see --list", number + 1));
            }
            known.push((name.to_owned(), reason.trim().to_owned()));
        }
        Ok(Self(known))
    }

    /// The record, with the reason if it failed and that is known.
    #[must_use]
    pub fn mark(&self, record: &Record) -> Record {
        let failed = matches!(record.verdict, Verdict::Failed(_));
        let reason = self.0.iter().find(|(name, _)| failed && name == record.id);
        Record { known: reason.map(|(_, reason)| reason.clone()), ..record.clone() }
    }

    /// The names of cases that are known to fail and have passed.
    pub fn passed<'a>(&self, records: &'a [Record]) -> Vec<&'a str> {
        let passed = records.iter().filter(|record| record.verdict == Verdict::Passed);
        passed.map(|record| record.id).filter(|id| self.0.iter().any(|(name, _)| name == id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_baseline_names_cases_that_exist() {
        let known =
            Known::read("# Valkey\n\nvanish  killed by signal 11\nopcode-4\n", &["vanish", "opcode-4"])
                .expect("valid");
        assert_eq!(known.0[0], ("vanish".to_owned(), "killed by signal 11".to_owned()));
        let error = Known::read("a\nb", &["a"]).expect_err("no such case");
        assert!(error.starts_with("line 2: ") && error.contains("\"b\""), "{error}");
    }
}
