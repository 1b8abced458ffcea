//! Runs a row: every program once a round, in another order each round.

use std::process::Stdio;

use indicatif::{ProgressBar, ProgressStyle};

use crate::contender::{Contender, ServerKind};
use crate::figures::Figures;
use crate::host;
use crate::matrix::Row;
use crate::place::Place;
use crate::programs::Programs;
use crate::sample::{Sample, Samples};
use crate::server::Server;

/// Runs a row.
pub(crate) fn row(programs: &Programs, place: Place, row: &Row, rounds: u32) -> Result<Samples, String> {
    let mut servers: Vec<Server> = Vec::new();
    for kind in [ServerKind::Valkey, ServerKind::Mock, ServerKind::BusyMock] {
        if row.contenders.iter().any(|contender| contender.needs() == Some(kind)) {
            let server = Server::start(programs, kind, place)?;
            server.fill(programs, row.value_len)?;
            servers.push(server);
        }
    }
    let server_of =
        |contender: &Contender| servers.iter().find(|server| contender.needs() == Some(server.kind));
    let mut samples: Samples = vec![Vec::new(); row.contenders.len()];
    let mut starts = Vec::new();
    for contender in &row.contenders {
        // Twice: the first may have found its files cold.
        let start = || run(programs, contender, contender.fewest(), row.value_len, server_of(contender));
        starts.push(start()?.cheaper(start()?));
    }
    let progress = progress(row, rounds);
    for round in 0..rounds as usize {
        for turn in 0..row.contenders.len() {
            // The order rotates, so that no program always runs first or after the same one.
            let number = (turn + round) % row.contenders.len();
            let contender = &row.contenders[number];
            progress.set_message(contender.to_string());
            let run = run(programs, contender, row.requests, row.value_len, server_of(contender))?;
            samples[number].push(run.since(&starts[number]));
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(samples)
}

/// The figures of one run, and its cost.
struct Run {
    requests: u64,
    figures: Figures,
    /// Seconds of processor time.
    client_cpu: f64,
    /// Seconds of processor time.
    server_cpu: Option<f64>,
}

/// Seconds.
const FEW_TICKS: f64 = 0.05;

impl Run {
    /// The one of two that took less processor time.
    fn cheaper(self, other: Run) -> Run {
        if other.client_cpu < self.client_cpu { other } else { self }
    }

    /// Its figures, without what a run of hardly any requests took.
    fn since(&self, start: &Run) -> Sample {
        let requests = self.requests.saturating_sub(start.requests) as f64;
        // Processor time is counted in hundredths of a second: what is less than a few of them is none.
        let per_request = |whole: f64, start: f64| {
            (whole - start > FEW_TICKS && requests > 0.0).then(|| (whole - start) * 1e6 / requests)
        };
        let server_cpu = self.server_cpu.zip(start.server_cpu);
        Sample {
            rate: self.figures.rate,
            p50: self.figures.p50,
            p99: self.figures.p99,
            client_cpu: per_request(self.client_cpu, start.client_cpu),
            server_cpu: server_cpu.and_then(|(whole, start)| per_request(whole, start)),
        }
    }
}

fn run(
    programs: &Programs,
    contender: &Contender,
    requests: u64,
    value_len: u32,
    server: Option<&Server>,
) -> Result<Run, String> {
    let mut command = programs.call(contender, requests, value_len, server);
    let children_before = host::cpu_of_ended_children();
    let server_before = server.map(Server::cpu);
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} failed with {}:\n{printed}{errors}", output.status));
    }
    let figures = contender.read(&printed).map_err(|failure| format!("{command:?}: {failure}"))?;
    Ok(Run {
        requests,
        figures,
        client_cpu: host::cpu_of_ended_children() - children_before,
        server_cpu: server.zip(server_before).map(|(server, before)| server.cpu() - before),
    })
}

/// A bar on standard error while a row runs; nothing without a terminal.
fn progress(row: &Row, rounds: u32) -> ProgressBar {
    let bar = ProgressBar::new(u64::from(rounds) * row.contenders.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar.with_prefix(row.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_start_takes_is_taken_off() {
        let run = |requests, client_cpu| Run {
            requests,
            figures: Figures::default(),
            client_cpu,
            server_cpu: Some(client_cpu / 2.0),
        };
        let sample = run(1_050, 0.3).since(&run(50, 0.1));
        assert!(sample.client_cpu.is_some_and(|cpu| (cpu - 200.0).abs() < 1e-6), "{sample:?}");
        assert!(sample.server_cpu.is_some_and(|cpu| (cpu - 100.0).abs() < 1e-6), "{sample:?}");
        assert_eq!(run(50, 0.3).since(&run(50, 0.1)).client_cpu, None, "no requests more");
        assert_eq!(run(1_050, 0.12).since(&run(50, 0.1)).client_cpu, None, "hardly more time");
    }
}
