//! What a run of `--evidence` found: figures of each cell, and what a reader needs to trust them.

use std::time::Duration;

use super::{Comparison, Environment, RunInfo, TestResult};

/// All cells, and where they were measured. Without host names, addresses and logins, unless the user wants them.
#[derive(Debug, Clone)]
pub(crate) struct Evidence {
    /// Where and how.
    pub(crate) about: About,
    /// The cells that were begun, in their order.
    pub(crate) cells: Vec<CellFound>,
    /// How many cells were chosen.
    pub(crate) chosen: usize,
    /// Whether the user ended the run, so that cells are missing.
    pub(crate) interrupted: bool,
}

/// Where and how a run was made.
#[derive(Debug, Clone)]
pub(crate) struct About {
    /// The command line, without the values of flags that could name or open something.
    pub(crate) command: String,
    /// Rounds of each test and transport.
    pub(crate) rounds: u32,
    /// How long each of them took.
    pub(crate) turn: Duration,
    /// This machine, this program and the link.
    pub(crate) client: Environment,
    /// What the server says of itself and its settings: names and values.
    pub(crate) server: Vec<(&'static str, String)>,
    /// The doctor's report on this machine.
    pub(crate) machine: serde_json::Value,
}

/// A figure that others have published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Published {
    /// What they have measured.
    pub(crate) figures: &'static str,
    /// Where it stands, as an address without its scheme.
    pub(crate) source: &'static str,
}

/// One cell.
#[derive(Debug, Clone)]
pub(crate) struct CellFound {
    /// Its name, for `--cells`.
    pub(crate) name: &'static str,
    /// How the first side moves values: `ring` or `direct`.
    pub(crate) way: &'static str,
    /// What others have found.
    pub(crate) published: Option<Published>,
    /// RDMA and TCP, if the connections could be opened.
    pub(crate) sides: Vec<RunInfo>,
    /// The tests that were measured.
    pub(crate) comparisons: Vec<Comparison>,
    /// Tests that were not measured, or gave wrong replies, each with the reason.
    pub(crate) failed: Vec<(String, String)>,
}

impl CellFound {
    /// The names of its sides.
    pub(crate) fn names(&self) -> [&'static str; 2] {
        [self.way, "tcp"]
    }

    /// What a test of it is called.
    pub(crate) fn label(&self, title: &str) -> String {
        format!("{} {title}", self.name)
    }
}

impl Evidence {
    /// Every comparison, with the cell that it belongs to.
    pub(crate) fn comparisons(&self) -> impl Iterator<Item = (&CellFound, &Comparison)> {
        self.cells.iter().flat_map(|cell| cell.comparisons.iter().map(move |compared| (cell, compared)))
    }

    /// Both sides of every comparison.
    pub(crate) fn results(&self) -> impl Iterator<Item = &TestResult> {
        self.comparisons().flat_map(|(_, compared)| compared.sides.iter().map(|side| &side.total))
    }
}
