//! A case, its verdict, and the record of its run.

use std::pin::Pin;
use std::time::Duration;

use crate::peer::Finding;

/// A case about the subject `C`: a [`Context`](crate::server::Context) of a server or of a
/// [client](crate::client::Context).
pub struct Case<C> {
    /// Its name, unique among the cases of its mode.
    pub id: &'static str,
    /// The clause of `spec/protocol.md` that it tests.
    pub clause: &'static str,
    /// What the case does to the other side.
    pub stimulus: &'static str,
    /// What the other side must do then.
    pub expected: &'static str,
    /// Published implementations die of it.
    pub hostile: bool,
    /// It is about servers that require TLS over RDMA.
    pub with_tls: bool,
    pub(crate) run: Run<C>,
}

pub(crate) type Run<C> =
    for<'a> fn(&'a mut C) -> Pin<Box<dyn Future<Output = Result<(), Finding>> + Send + 'a>>;

impl<C> Case<C> {
    /// A case without attributes. Its clause, stimulus and expectation follow.
    pub(crate) const fn new(id: &'static str, run: Run<C>) -> Self {
        Self { id, clause: "", stimulus: "", expected: "", hostile: false, with_tls: false, run }
    }

    pub(crate) const fn clause(self, clause: &'static str) -> Self {
        Self { clause, ..self }
    }

    pub(crate) const fn stimulus(self, stimulus: &'static str) -> Self {
        Self { stimulus, ..self }
    }

    pub(crate) const fn expected(self, expected: &'static str) -> Self {
        Self { expected, ..self }
    }

    pub(crate) const fn hostile(self) -> Self {
        Self { hostile: true, ..self }
    }

    pub(crate) const fn with_tls(self) -> Self {
        Self { with_tls: true, ..self }
    }
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The other side did what was expected.
    Passed,
    /// The other side did something else, which the text describes.
    Failed(String),
    /// The case was not run, or shows nothing about the other side, for this reason.
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

/// A case that was run, or left out, and its verdict.
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
    /// Whether it passed.
    pub verdict: Verdict,
    /// What was sent and received, in order. Empty unless the case failed.
    pub evidence: Vec<String>,
    /// How long it took.
    pub elapsed: Duration,
    /// Why it is known to fail, if it has failed and a [baseline](crate::Known) says so.
    pub known: Option<String>,
}

impl Record {
    pub(crate) fn new<C>(case: &Case<C>, verdict: Verdict, evidence: Vec<String>, elapsed: Duration) -> Self {
        let evidence = if matches!(verdict, Verdict::Failed(_)) { evidence } else { Vec::new() };
        Self {
            id: case.id,
            clause: case.clause,
            stimulus: case.stimulus,
            expected: case.expected,
            verdict,
            evidence,
            elapsed,
            known: None,
        }
    }

    /// Whether it failed, and no baseline says that it would.
    pub fn is_new_failure(&self) -> bool {
        matches!(self.verdict, Verdict::Failed(_)) && self.known.is_none()
    }

    /// `passed`, `failed`, `known` for a failure that a baseline names, or `not run`.
    pub fn word(&self) -> &'static str {
        if self.known.is_some() { "known" } else { self.verdict.word() }
    }

    /// A case that was not run, and why.
    pub fn not_run<C>(case: &Case<C>, why: impl Into<String>) -> Self {
        Self::new(case, Verdict::NotRun(why.into()), Vec::new(), Duration::ZERO)
    }
}
