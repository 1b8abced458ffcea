//! What people see, and what is kept: a table a row of the matrix, and one JSON file.

use std::fs::File;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::host::Environment;
use crate::matrix::{Bound, Figure, Row, Target};
use crate::measure::{Sample, Samples};
use crate::ratio::{Ratio, median};

pub(crate) fn list(row: &Row) {
    say(&row.to_string());
}

pub(crate) fn head(environment: &Environment, rounds: u32) {
    say(&environment.summary());
    say(&format!(
        "{rounds} rounds; medians; ratios are ours against theirs of the same round: median (lowest to highest)\n"
    ));
}

/// A bar on standard error while a row runs; nothing where that is no terminal.
pub(crate) fn progress(row: &Row, rounds: u32) -> ProgressBar {
    let bar = ProgressBar::new(u64::from(rounds) * row.contenders.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar.with_prefix(row.name.clone())
}

pub(crate) fn row(row: &Row, samples: &Samples) {
    let mut lines = vec![
        ["", "requests/s", "ratio", "p50 ms", "p99 ms", "client CPU us", "server CPU us"].map(str::to_owned),
    ];
    for (place, contender) in row.contenders.iter().enumerate() {
        let of = |figure| median(&figures(&samples[place], figure));
        let ratio = if place == 0 { "-".to_owned() } else { Ratio::of(samples, place, Figure::Rate).text() };
        lines.push([
            contender.to_string(),
            number(of(Figure::Rate), 0),
            ratio,
            number(of(Figure::P50), 3),
            number(of(Figure::P99), 3),
            number(of(Figure::ClientCpu), 1),
            number(of(Figure::ServerCpu), 1),
        ]);
    }
    say(&row.to_string());
    for line in aligned(&lines) {
        say(&format!("  {line}"));
    }
    for target in &row.targets {
        say(&format!("  {}", verdict(row, samples, target)));
    }
    say("");
}

pub(crate) fn failure(story: &str) {
    let _ = writeln!(std::io::stderr(), "valkey-rdma-side-by-side: {story}");
}

/// A file for the results, made before anything is measured.
pub(crate) struct JsonFile {
    path: PathBuf,
    file: File,
}

impl JsonFile {
    pub(crate) fn create(path: &Path) -> Result<Self, String> {
        let file = File::create(path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(crate) fn write(
        &mut self,
        environment: &Environment,
        results: &[(&Row, Samples)],
    ) -> Result<(), String> {
        let rows = results.iter().map(|(row, samples)| RowRecord::new(row, samples)).collect();
        let record = Record { environment, rows };
        serde_json::to_writer_pretty(&mut self.file, &record)
            .map_err(std::io::Error::from)
            .and_then(|()| writeln!(self.file))
            .map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }
}

#[derive(Serialize)]
struct Record<'a> {
    environment: &'a Environment,
    rows: Vec<RowRecord<'a>>,
}

#[derive(Serialize)]
struct RowRecord<'a> {
    name: &'a str,
    requests: u64,
    value_len: u32,
    contenders: Vec<ContenderRecord<'a>>,
}

#[derive(Serialize)]
struct ContenderRecord<'a> {
    name: String,
    samples: &'a [Sample],
}

impl<'a> RowRecord<'a> {
    fn new(row: &'a Row, samples: &'a Samples) -> Self {
        let contenders = row.contenders.iter().zip(samples);
        let contenders =
            contenders.map(|(contender, samples)| ContenderRecord { name: contender.to_string(), samples });
        Self {
            name: &row.name,
            requests: row.requests,
            value_len: row.value_len,
            contenders: contenders.collect(),
        }
    }
}

fn verdict(row: &Row, samples: &Samples, target: &Target) -> String {
    let ratio = Ratio::of(samples, target.against, target.figure);
    let (wanted, met) = match target.bound {
        Bound::AtLeast(bound) => (format!(">= {bound:.2}x"), ratio.median().map(|ratio| ratio >= bound)),
        Bound::AtMost(bound) => (format!("<= {bound:.2}x"), ratio.median().map(|ratio| ratio <= bound)),
    };
    let what = match target.figure {
        Figure::Rate => "requests/s",
        Figure::P50 => "p50",
        Figure::P99 => "p99",
        Figure::ClientCpu => "client CPU",
        Figure::ServerCpu => "server CPU",
    };
    let verdict = match met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "not measured",
    };
    format!("{what} against {}: {}, wanted {wanted}: {verdict}", row.contenders[target.against], ratio.text())
}

fn figures(samples: &[Sample], figure: Figure) -> Vec<f64> {
    samples.iter().filter_map(|sample| sample.figure(figure)).collect()
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// The first column to the left, the others to the right.
fn aligned<const N: usize>(lines: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let one = |line: &[String; N]| {
        let mut text = format!("{:<w$}", line[0], w = widths[0]);
        for (cell, w) in line.iter().zip(&widths).skip(1) {
            text.push_str(&format!("  {cell:>w$}"));
        }
        text.trim_end().to_owned()
    };
    lines.iter().map(one).collect()
}

fn say(line: &str) {
    // A reader that has gone away ends nothing.
    let _ = writeln!(stdout(), "{line}");
}
