//! All results of a run.

use super::{Comparison, RunInfo, Sweep, TestResult};

/// Everything that was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Tests, each with the run it belongs to.
    pub(crate) tests: Vec<(RunInfo, TestResult)>,
    /// Comparisons, and both servers.
    pub(crate) comparisons: Vec<Comparison>,
    /// The servers of the comparisons.
    pub(crate) compared: Vec<RunInfo>,
    /// Sweeps, each with the run it belongs to.
    pub(crate) sweeps: Vec<(RunInfo, Sweep)>,
    /// Whether the user ended the run, so that the last result is not complete and others may be missing.
    pub(crate) interrupted: bool,
}

impl Found {
    /// Whether nothing was measured.
    pub(crate) fn is_empty(&self) -> bool {
        self.tests.is_empty() && self.comparisons.is_empty() && self.sweeps.is_empty()
    }
}
