//! The table that people read: a line per case as soon as it is done, and the details of each failure below it.

use std::fmt::Write as _;
use std::io;

use anstyle::{AnsiColor, Effects};
use valkey_rdma_program::{Style, print};

use crate::{Record, Verdict, basis, level, rule};

/// Prints a run to standard output.
#[derive(Debug)]
pub struct Table {
    widths: (usize, usize),
    style: Style,
}

impl Table {
    /// A table of cases with these ids and clauses. Only a terminal gets colours, and none if `NO_COLOR` is set and not
    /// empty.
    pub fn new<'a>(cases: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let longest = |(id, clause): (usize, usize), (other, its): (&str, &str)| {
            (id.max(other.len()), clause.max(its.len()))
        };
        Self { widths: cases.into_iter().fold((0, 0), longest), style: Style::of(&io::stdout()) }
    }

    /// One line of `--list`.
    pub fn listed(&self, id: &str, clause: &str, hostile: bool, stimulus: &str, expected: &str) -> String {
        let (id_width, clause_width) = self.widths;
        let mark = if hostile { " (--hostile)" } else { "" };
        let level = level(clause).unwrap_or("unknown");
        format!("{id:<id_width$}  {clause:<clause_width$}  {level:<6}  {stimulus} -> {expected}{mark}")
    }

    /// The line of one case. If it failed: also the clause, what was expected, what was found, and the evidence.
    pub fn line(&self, record: &Record) -> String {
        let (id_width, clause_width) = self.widths;
        let (id, clause, word) = (record.id, record.clause, record.word());
        let colour = match record.verdict {
            Verdict::Passed => AnsiColor::Green,
            Verdict::Failed(_) if record.known.is_some() => AnsiColor::Yellow,
            Verdict::Failed(_) => AnsiColor::Red,
            Verdict::NotRun(_) => AnsiColor::Yellow,
        };
        let word = self.style.styled(format!("{word:<7}"), colour.on_default());
        let seconds = record.elapsed.as_secs_f64();
        let mut text = format!("{word}  {id:<id_width$}  {clause:<clause_width$}  {seconds:7.2} s");
        if let Some(why) = &record.known {
            // Writing to a string does not fail.
            let _ = write!(text, "  {why}");
            return text;
        }
        if let Verdict::Failed(found) = &record.verdict {
            let rule = rule(clause).unwrap_or_default();
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "\n    clause    {clause}: {rule}\n    level     {} ({})\n    stimulus  {}\n    expected  {}\n    found     {found}",
                level(clause).unwrap_or("unknown"),
                match basis(clause) {
                    Some("page") => "Valkey's page speaks of it",
                    Some("practice") => "Valkey's page is silent; it follows from what peers do",
                    _ => "the clause does not say on what it rests",
                },
                record.stimulus,
                record.expected
            );
            if !record.evidence.is_empty() {
                let _ = write!(text, "\n    evidence  {LEGEND}");
            }
            for line in record.evidence.iter().skip(record.evidence.len().saturating_sub(EVIDENCE)) {
                let _ = write!(text, "\n    {}", self.style.styled(line, Effects::DIMMED.into()));
            }
        }
        text
    }

    /// Writes a line to standard output. A closed pipe does not fail the run.
    pub fn print(&self, line: &str) {
        print(&format!("{line}\n"));
    }
}

/// Lines of evidence in the table; the files have all.
const EVIDENCE: usize = 20;

/// How to read a line of evidence.
const LEGEND: &str = "seconds; c1, c2: connections in the order they were made; -> sent, <- received";
