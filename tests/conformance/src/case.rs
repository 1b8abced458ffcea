//! What a case is, and what comes of it.

use std::pin::Pin;
use std::time::Duration;

use crate::peer::Finding;

/// A case about the subject `C`.
pub struct Case<C> {
    /// Its name, unique in its mode.
    pub id: &'static str,
    /// The clause of `spec/protocol.md`.
    pub clause: &'static str,
    /// What is done to the other side.
    pub stimulus: &'static str,
    /// What it must do then.
    pub expected: &'static str,
    /// Published implementations die of it.
    pub hostile: bool,
    pub(super) run: Run<C>,
}

pub(super) type Run<C> =
    for<'a> fn(&'a mut C) -> Pin<Box<dyn Future<Output = Result<(), Finding>> + Send + 'a>>;

impl<C> Case<C> {
    pub(super) const fn new(
        id: &'static str,
        clause: &'static str,
        stimulus: &'static str,
        expected: &'static str,
        run: Run<C>,
    ) -> Self {
        Self { id, clause, stimulus, expected, hostile: false, run }
    }

    pub(super) const fn hostile(self) -> Self {
        Self { hostile: true, ..self }
    }
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As expected.
    Passed,
    /// Otherwise: what was found.
    Failed(String),
    /// It says nothing, for this reason.
    NotRun(String),
}

impl Verdict {
    /// `passed`, `failed` or `not run`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
            Self::NotRun(_) => "not run",
        }
    }

    /// What was found, or why it was not run.
    pub fn detail(&self) -> &str {
        match self {
            Self::Passed => "",
            Self::Failed(text) | Self::NotRun(text) => text,
        }
    }
}

impl From<Result<(), Finding>> for Verdict {
    fn from(result: Result<(), Finding>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(Finding::Failed(what)) => Self::Failed(what),
            Err(Finding::NotRun(why)) => Self::NotRun(why),
        }
    }
}

/// A case and what came of it.
#[derive(Clone, Debug)]
pub struct Record {
    /// The case's name.
    pub id: &'static str,
    /// Its clause.
    pub clause: &'static str,
    /// What was done.
    pub stimulus: &'static str,
    /// What was expected.
    pub expected: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// What was sent and seen, in order; empty unless it failed.
    pub evidence: Vec<String>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Record {
    pub(super) fn new<C>(case: &Case<C>, verdict: Verdict, evidence: Vec<String>, elapsed: Duration) -> Self {
        let evidence = if matches!(verdict, Verdict::Failed(_)) { evidence } else { Vec::new() };
        Self {
            id: case.id,
            clause: case.clause,
            stimulus: case.stimulus,
            expected: case.expected,
            verdict,
            evidence,
            elapsed,
        }
    }

    pub(super) fn not_run<C>(case: &Case<C>, why: impl Into<String>) -> Self {
        Self::new(case, Verdict::NotRun(why.into()), Vec::new(), Duration::ZERO)
    }
}
