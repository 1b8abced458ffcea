//! The report for continuous integration: JUnit's XML.

use std::fmt::Write as _;

use crate::{Record, Verdict};

/// One `testsuite`, one `testcase` per case; the evidence is the text of a failure.
pub fn junit(subject: &str, records: &[Record]) -> String {
    let count = |word| records.iter().filter(|record| record.word() == word).count();
    let time: f64 = records.iter().map(|record| record.elapsed.as_secs_f64()).sum();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\" \
         time=\"{time:.3}\">\n",
        escape(subject),
        records.len(),
        count("failed"),
        count("not run") + count("known"),
    );
    for record in records {
        let (clause, id, time) = (record.clause, record.id, record.elapsed.as_secs_f64());
        // Writing to a string does not fail.
        let _ = write!(xml, "  <testcase classname=\"{clause}\" name=\"{id}\" time=\"{time:.3}\"");
        let _ = match &record.verdict {
            Verdict::Passed => writeln!(xml, "/>"),
            Verdict::NotRun(why) => {
                writeln!(xml, "><skipped message=\"{}\"/></testcase>", escape(why))
            }
            Verdict::Failed(_) if record.known.is_some() => {
                let why = record.known.as_deref().unwrap_or_default();
                writeln!(xml, "><skipped message=\"known: {}\"/></testcase>", escape(why))
            }
            Verdict::Failed(found) => writeln!(
                xml,
                "><failure message=\"{}\">{}</failure></testcase>",
                escape(found),
                escape(&record.evidence.join("\n"))
            ),
        };
    }
    xml + "</testsuite>\n"
}

/// Text as XML may hold it; control characters, which it may not, become `?`.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(character),
            character if character.is_control() => escaped.push('?'),
            character => escaped.push(character),
        }
    }
    escaped
}
