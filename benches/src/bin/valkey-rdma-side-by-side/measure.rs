//! Runs a row: every program once a round, in another order each round.

use std::process::Stdio;

use serde::Serialize;

use crate::contender::{Contender, Programs};
use crate::host;
use crate::matrix::{Figure, Place, Row};
use crate::report;
use crate::server::{Server, ServerKind};

/// One run of one program.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Sample {
    /// Requests per second.
    pub(crate) rate: f64,
    /// Milliseconds.
    pub(crate) p50: Option<f64>,
    /// Milliseconds.
    pub(crate) p99: Option<f64>,
    /// Processor time of the program, user and system, in microseconds per request; its start and end are in it.
    pub(crate) client_cpu: f64,
    /// The same of the server.
    pub(crate) server_cpu: Option<f64>,
}

impl Sample {
    pub(crate) fn figure(&self, figure: Figure) -> Option<f64> {
        match figure {
            Figure::Rate => Some(self.rate),
            Figure::P50 => self.p50,
            Figure::P99 => self.p99,
            Figure::ClientCpu => Some(self.client_cpu),
            Figure::ServerCpu => self.server_cpu,
        }
    }
}

/// The samples of every program of a row, one a round.
pub(crate) type Samples = Vec<Vec<Sample>>;

/// Runs a row.
///
/// # Errors
/// The story, if a server does not start or a program fails.
pub(crate) fn row(programs: &Programs, place: Place, row: &Row, rounds: u32) -> Result<Samples, String> {
    let mut servers: Vec<Server> = Vec::new();
    for kind in [ServerKind::Valkey, ServerKind::Mock] {
        if row.contenders.iter().any(|contender| contender.needs() == Some(kind)) {
            let server = Server::start(programs, kind, place)?;
            server.fill(programs, row.value_len)?;
            servers.push(server);
        }
    }
    let mut samples: Samples = vec![Vec::new(); row.contenders.len()];
    let progress = report::progress(row, rounds);
    for round in 0..rounds as usize {
        for turn in 0..row.contenders.len() {
            // Nobody always runs first, or always after the same one.
            let number = (turn + round) % row.contenders.len();
            let contender = &row.contenders[number];
            progress.set_message(contender.to_string());
            let server = servers.iter().find(|server| contender.needs() == Some(server.kind));
            samples[number].push(sample(programs, row, contender, server)?);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(samples)
}

fn sample(
    programs: &Programs,
    row: &Row,
    contender: &Contender,
    server: Option<&Server>,
) -> Result<Sample, String> {
    let mut command = contender.command(programs, row, server);
    let children_before = host::cpu_of_ended_children();
    let server_before = server.map(Server::cpu);
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} failed with {}:\n{printed}{errors}", output.status));
    }
    let told = contender.read(&printed).map_err(|story| format!("{command:?}: {story}"))?;
    let per_request = |seconds: f64| seconds * 1e6 / row.requests as f64;
    Ok(Sample {
        rate: told.rate,
        p50: told.p50,
        p99: told.p99,
        client_cpu: per_request(host::cpu_of_ended_children() - children_before),
        server_cpu: server.zip(server_before).map(|(server, before)| per_request(server.cpu() - before)),
    })
}
