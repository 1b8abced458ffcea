//! The table on standard output: one line per case, printed when it ends.
#![allow(clippy::print_stdout)]

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Instant;

use crate::case::{Case, ServerKind};
use crate::client::Rates;

const WIDTHS: [usize; 9] = [10, 11, 16, 7, 7, 3, 3, 3, 5];

/// Counts verdicts and prints them.
pub(crate) struct Report {
    started: Instant,
    case_started: Instant,
    passed: usize,
    failed: Vec<String>,
}

impl Report {
    pub(crate) fn start() -> Self {
        let mtu = std::env::var("VALKEY_RDMA_LAB_ACTIVE_MTU").unwrap_or("unknown".to_owned());
        println!("RDMA device rxe0 (software), active MTU {mtu}; times are those of an emulated processor");
        let now = Instant::now();
        Self { started: now, case_started: now, passed: 0, failed: Vec::new() }
    }

    /// Starts a case. On a terminal, its line shows at once.
    pub(crate) fn begin(&mut self, case: &Case) {
        self.case_started = Instant::now();
        if std::io::stdout().is_terminal() {
            print!("......  {}\r", line(case));
            let _ = std::io::stdout().flush();
        }
    }

    pub(crate) fn end(&mut self, case: &Case, result: Result<Rates, String>) {
        let seconds = self.case_started.elapsed().as_secs_f64();
        let rates = result.as_deref().unwrap_or_default();
        let rates: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}/s")).collect();
        let line = format!("{} {seconds:7.1} s  {}", line(case), rates.join(" "));
        self.verdict(line.trim_end(), case.to_string(), result.map(|_| ()));
    }

    /// Reports a program that had to refuse something.
    pub(crate) fn refusal(&mut self, what: &str, result: Result<(), String>) {
        let name = format!("refused    {what}");
        self.verdict(&name, name.clone(), result);
    }

    /// Reports how a server ended when it was asked to.
    pub(crate) fn end_of_server(&mut self, server: ServerKind, result: Result<(), String>) {
        let name = format!("{} ends in order", server.program);
        self.verdict(&name, name.clone(), result);
    }

    /// The totals, and what failed once more; success if nothing did.
    pub(crate) fn finish(self) -> ExitCode {
        let seconds = self.started.elapsed().as_secs();
        println!("{} passed, {} failed in {seconds} s", self.passed, self.failed.len());
        for name in &self.failed {
            println!("FAILED  {name}");
        }
        // A run of nothing shows nothing.
        if self.failed.is_empty() && self.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn verdict(&mut self, line: &str, name: String, result: Result<(), String>) {
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("passed  {line}");
            }
            Err(failure) => {
                self.failed.push(name);
                println!("FAILED  {line}\n  {}", failure.trim_end());
            }
        }
    }
}

/// Prints the cases, for `--only` to choose from.
pub(crate) fn list(cases: &[impl std::fmt::Display]) {
    for case in cases {
        println!("{case}");
    }
}

fn line(case: &Case) -> String {
    let cells = case.cells();
    let padded = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:<width$}"));
    padded.collect::<Vec<_>>().join(" ")
}
