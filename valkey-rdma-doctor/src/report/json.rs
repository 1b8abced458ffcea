//! A report as JSON, for programs.

use serde::Serialize;

use super::{Report, Section};

/// The number of this form. It changes when a field changes its name or meaning; new fields may be added under it.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    doctor: &'static str,
    subject: &'a str,
    works: bool,
    sections: &'a [Section],
}

impl Report {
    /// The report as JSON, on several lines.
    ///
    /// Shape: `{"format": 1, "doctor": VERSION, "subject": SUBJECT, "works": BOOL, "sections": [{"name": TEXT, "subject":
    /// TEXT or null, "findings": [{"id": TEXT, "verdict": "ok" | "note" | "warning" | "problem", "value": TEXT, "remedy":
    /// [TEXT]}]}]}`. `name` and `id` are stable; `value` and `remedy` are for people.
    pub fn json(&self, subject: &str) -> String {
        let document = Document {
            format: FORMAT,
            doctor: env!("CARGO_PKG_VERSION"),
            subject,
            works: self.works(),
            sections: &self.sections,
        };
        serde_json::to_string_pretty(&document).expect("texts and numbers become JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Finding;

    #[test]
    fn the_shape_is_the_documented_one() {
        let mut section = Section::about("device", "rxe0");
        section.push(Finding::problem("state", "DOWN").remedy("plug it in"));
        let mut report = Report::default();
        report.push(section);
        let json: serde_json::Value = serde_json::from_str(&report.json("machine")).expect("it is JSON");
        let finding = serde_json::json!({"id": "state", "verdict": "problem", "value": "DOWN", "remedy": ["plug it in"]});
        let expected = serde_json::json!({
            "format": 1, "doctor": env!("CARGO_PKG_VERSION"), "subject": "machine", "works": false,
            "sections": [{"name": "device", "subject": "rxe0", "findings": [finding]}],
        });
        assert_eq!(json, expected);
    }
}
