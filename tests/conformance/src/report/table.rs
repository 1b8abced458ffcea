//! The table that people read: a line per case as soon as it is done, the story of each failure below it.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use crate::{Record, Verdict};

/// Prints a run to standard output.
#[derive(Debug)]
pub struct Table {
    widths: (usize, usize),
    colour: bool,
}

impl Table {
    /// For cases with these ids and clauses. Colours only a terminal, and none if `NO_COLOR` is set.
    pub fn new<'a>(cases: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let longest = |(id, clause): (usize, usize), (other, its): (&str, &str)| {
            (id.max(other.len()), clause.max(its.len()))
        };
        let colour = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { widths: cases.into_iter().fold((0, 0), longest), colour }
    }

    /// One line of `--list`.
    pub fn listed(&self, id: &str, clause: &str, hostile: bool, stimulus: &str, expected: &str) -> String {
        let (id_width, clause_width) = self.widths;
        let mark = if hostile { " (--hostile)" } else { "" };
        format!("{id:<id_width$}  {clause:<clause_width$}  {stimulus} -> {expected}{mark}")
    }

    /// One case: its line, and if it failed what was expected, what was found, and the evidence.
    pub fn line(&self, record: &Record) -> String {
        let (id_width, clause_width) = self.widths;
        let (id, clause, word) = (record.id, record.clause, record.verdict.word());
        let code = match record.verdict {
            Verdict::Passed => "32",
            Verdict::Failed(_) => "31",
            Verdict::NotRun(_) => "33",
        };
        let word = self.paint(code, &format!("{word:<7}"));
        let seconds = record.elapsed.as_secs_f64();
        let mut text = format!("{word}  {id:<id_width$}  {clause:<clause_width$}  {seconds:7.2} s");
        if let Verdict::Failed(found) = &record.verdict {
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "\n    stimulus  {}\n    expected  {}\n    found     {found}",
                record.stimulus, record.expected
            );
            for line in record.evidence.iter().skip(record.evidence.len().saturating_sub(EVIDENCE)) {
                let _ = write!(text, "\n    {}", self.paint("2", line));
            }
        }
        text
    }

    /// Writes a line to standard output. That nobody reads it any more is no failure of the run.
    pub fn print(&self, line: &str) {
        let _ = writeln!(io::stdout(), "{line}");
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Lines of evidence in the table; the files have all.
const EVIDENCE: usize = 20;
