//! What people see: a table a row of the matrix.

use std::io::{Write, stdout};

use crate::host::Environment;
use crate::matrix::{Bound, Row, Target};
use crate::ratio::{Ratio, median};
use crate::record::Earlier;
use crate::sample::{Figure, Sample, Samples};

pub(crate) fn list(row: &Row) {
    say(&row.to_string());
}

pub(crate) fn head(environment: &Environment, rounds: u32) {
    say(&environment.summary());
    say(&format!(
        "{rounds} rounds; medians; ratios are ours against theirs of the same round: median (lowest to highest)\n"
    ));
}

pub(crate) fn row(row: &Row, samples: &Samples, earlier: Option<&Earlier>) {
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
        say(&format!("  {}", verdict(row, samples, target, earlier)));
    }
    say("");
}

pub(crate) fn failure(failure: &str) {
    let _ = writeln!(std::io::stderr(), "valkey-rdma-side-by-side: {failure}");
}

fn verdict(row: &Row, samples: &Samples, target: &Target, earlier: Option<&Earlier>) -> String {
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
    let then = earlier.and_then(|earlier| earlier.ratio(row, target.against, target.figure));
    let change =
        then.map_or_else(String::new, |then| format!("; was {}", change(&ratio, &then, target.bound)));
    let against = &row.contenders[target.against];
    format!("{what} against {against}: {}, wanted {wanted}: {verdict}{change}", ratio.text())
}

/// What it was, and whether it has moved by more than the rounds of either run differ.
fn change(now: &Ratio, then: &Ratio, bound: Bound) -> String {
    let moved = match (now.range(), then.range()) {
        (Some((lowest, _)), Some((_, highest))) if lowest > highest => Some(true),
        (Some((_, highest)), Some((lowest, _))) if highest < lowest => Some(false),
        _ => None,
    };
    let word = match (moved, bound) {
        (None, _) => "",
        (Some(true), Bound::AtLeast(_)) | (Some(false), Bound::AtMost(_)) => ", BETTER",
        _ => ", WORSE",
    };
    format!("{}{word}", then.text())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_moved_beyond_the_spread_of_both_runs_has_changed() {
        let sample = |rate| Sample { rate, p50: None, p99: None, client_cpu: Some(1.0), server_cpu: None };
        let ratio =
            |rates: [f64; 2]| Ratio::between(&rates.map(sample), &[sample(1.0), sample(1.0)], Figure::Rate);
        let (slow, fast) = (ratio([1.0, 2.0]), ratio([3.0, 4.0]));
        assert_eq!(change(&fast, &slow, Bound::AtLeast(1.0)), "1.50x (1.00 to 2.00), BETTER");
        assert_eq!(change(&fast, &slow, Bound::AtMost(1.0)), "1.50x (1.00 to 2.00), WORSE");
        assert_eq!(change(&slow, &fast, Bound::AtLeast(1.0)), "3.50x (3.00 to 4.00), WORSE");
        assert_eq!(change(&ratio([1.5, 2.5]), &slow, Bound::AtLeast(1.0)), "1.50x (1.00 to 2.00)");
    }
}
