//! A report as aligned text.

use std::fmt::Write as _;

use anstyle::AnsiColor;
use valkey_rdma_program::printable;

use super::{Finding, Report, Style, Verdict};

impl Verdict {
    /// The word in front of a line.
    fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Warning => "warning",
            Verdict::Problem => "PROBLEM",
        }
    }
}

/// Columns that the verdict takes.
const VERDICT: usize = 7;

impl Report {
    /// The report as text: a heading for each section, a line for each finding, and below it what to do.
    pub fn text(&self, style: Style) -> String {
        let id = self.findings().map(|finding| finding.id.len()).max().unwrap_or(0);
        let mut out = String::new();
        for section in &self.sections {
            let heading = match &section.subject {
                Some(subject) => format!("{} {subject}", section.name),
                None => section.name.to_owned(),
            };
            let _ = writeln!(out, "{}", style.bold(heading));
            for finding in &section.findings {
                write_finding(&mut out, finding, id, style);
            }
            out.push('\n');
        }
        out
    }
}

fn write_finding(out: &mut String, finding: &Finding, id: usize, style: Style) {
    let word = format!("{:VERDICT$}", finding.verdict.word());
    let word = style.styled(word, emphasis(finding.verdict));
    // Writing to a string cannot fail.
    let _ = writeln!(out, "  {word}  {:id$}  {}", finding.id, printable(&finding.value));
    let indent = 2 + VERDICT + 2 + id + 2;
    for (number, step) in finding.remedy.iter().enumerate() {
        let arrow = if number == 0 { "-> " } else { "   " };
        let _ = writeln!(out, "{:indent$}{arrow}{}", "", printable(step));
    }
}

fn emphasis(verdict: Verdict) -> anstyle::Style {
    match verdict {
        Verdict::Ok => AnsiColor::Green.on_default(),
        Verdict::Note => AnsiColor::Cyan.on_default(),
        Verdict::Warning => AnsiColor::Yellow.on_default().bold(),
        Verdict::Problem => AnsiColor::Red.on_default().bold(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Section;

    #[test]
    fn a_text_of_a_server_cannot_move_the_cursor() {
        let mut section = Section::about("server", "here");
        section.push(Finding::ok("version", "9.1\x1b[2J"));
        let report = Report { sections: vec![section] };
        assert_eq!(report.text(Style::Plain), "server here\n  ok       version  9.1\\u{1b}[2J\n\n");
    }

    #[test]
    fn values_and_remedies_stand_below_each_other() {
        let mut section = Section::about("device", "rxe0");
        section.push(Finding::ok("state", "ACTIVE"));
        section.push(Finding::problem("memlock", "0 KiB").remedy("`ulimit -l`").remedy("or else"));
        let mut report = Report::default();
        report.push(section);
        report.push(Section::new("empty"));
        assert_eq!(
            report.text(Style::Plain),
            "device rxe0\n\
             \x20 ok       state    ACTIVE\n\
             \x20 PROBLEM  memlock  0 KiB\n\
             \x20                   -> `ulimit -l`\n\
             \x20                      or else\n\n"
        );
        assert!(report.text(Style::Terminal).contains("\u{1b}[1m\u{1b}[31mPROBLEM"));
    }
}
