//! What was found: a [`Report`] of sections, each of findings with a verdict, a value and what to do.

mod json;
mod text;

use serde::Serialize;

pub use valkey_rdma_program::Style;

/// How a finding bears on RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing has to be done.
    Note,
    /// RDMA works, but less well than it could, or not for every use.
    Warning,
    /// RDMA cannot work until this is mended.
    Problem,
}

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about, such as `memlock`. Stable within its section.
    pub id: String,
    /// How it bears on RDMA.
    pub verdict: Verdict,
    /// What was found.
    pub value: String,
    /// What to do about it, one step a line. Empty if nothing has to be done.
    pub remedy: Vec<String>,
}

/// Findings about one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Section {
    /// The kind of thing, such as `device`. Stable.
    pub name: &'static str,
    /// Which one, such as `mlx5_0`, where there can be several.
    pub subject: Option<String>,
    /// The findings, in the order in which they are shown.
    pub findings: Vec<Finding>,
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The sections, in the order in which they are shown.
    pub sections: Vec<Section>,
}

impl Finding {
    /// A finding without a remedy.
    pub fn new(id: impl Into<String>, verdict: Verdict, value: impl Into<String>) -> Self {
        Self { id: id.into(), verdict, value: value.into(), remedy: Vec::new() }
    }

    /// Something that is as it should be.
    pub fn ok(id: impl Into<String>, value: impl Into<String>) -> Self {
        Self::new(id, Verdict::Ok, value)
    }

    /// Something worth knowing.
    pub fn note(id: impl Into<String>, value: impl Into<String>) -> Self {
        Self::new(id, Verdict::Note, value)
    }

    /// Something that works less well than it could.
    pub fn warning(id: impl Into<String>, value: impl Into<String>) -> Self {
        Self::new(id, Verdict::Warning, value)
    }

    /// Something that keeps RDMA from working.
    pub fn problem(id: impl Into<String>, value: impl Into<String>) -> Self {
        Self::new(id, Verdict::Problem, value)
    }

    /// Adds a step of the remedy.
    #[must_use]
    pub fn remedy(mut self, step: impl Into<String>) -> Self {
        self.remedy.push(step.into());
        self
    }

    /// Turns a problem into a warning: it concerns something that is not needed.
    #[must_use]
    pub fn at_most_a_warning(mut self) -> Self {
        self.verdict = self.verdict.min(Verdict::Warning);
        self
    }
}

impl Section {
    /// A section without findings.
    pub fn new(name: &'static str) -> Self {
        Self { name, subject: None, findings: Vec::new() }
    }

    /// A section about one of several things of a kind.
    pub fn about(name: &'static str, subject: impl Into<String>) -> Self {
        Self { name, subject: Some(subject.into()), findings: Vec::new() }
    }

    /// Adds a finding.
    pub fn push(&mut self, finding: Finding) {
        self.findings.push(finding);
    }
}

impl Report {
    /// Adds a section, unless it is empty.
    pub fn push(&mut self, section: Section) {
        if !section.findings.is_empty() {
            self.sections.push(section);
        }
    }

    /// How many findings have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.findings().filter(|finding| finding.verdict == verdict).count()
    }

    /// Whether nothing that was found keeps RDMA from working.
    pub fn works(&self) -> bool {
        self.count(Verdict::Problem) == 0
    }

    /// All findings, in order.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.sections.iter().flat_map(|section| &section.findings)
    }
}
