//! Figures in rows: results, settings, and what was verified.

use std::fmt::Write;

use crate::drive::{Pace, Verify};
use crate::measure::{Comparison, Evidence, Found, RunInfo, TestResult};

use super::Text;
use super::{judged, runs};
use crate::report::Percentiles;
use crate::report::columns::{self, Row, Value};
use crate::report::numbers::ms;
use crate::report::pictures::differences;

/// A table whose first column stays in view.
fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let heads: String = heads.iter().map(|head| format!("<th>{}</th>", Text(head))).collect();
    let mut body = String::new();
    for row in rows {
        let _ = write!(body, "<tr>{}</tr>", row.concat());
    }
    format!("<div class=\"wide\"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>\n")
}

fn cell(text: impl std::fmt::Display) -> String {
    format!("<td>{}</td>", Text(text))
}

/// A table of results: one row for each, under its name.
fn of_results<'a>(
    first: &str,
    (heads, values): (Vec<String>, impl Fn(&Row<'_>) -> Vec<Value>),
    rows: impl Iterator<Item = (String, &'a RunInfo, &'a TestResult)>,
) -> String {
    let heads: Vec<&str> = std::iter::once(first).chain(heads.iter().map(String::as_str)).collect();
    let row = |(name, run, result): (String, &RunInfo, &TestResult)| {
        let figures = values(&Row::of(run, result)).into_iter().map(|value| match value.is_bad() {
            true => format!("<td class=\"bad\">{}</td>", value.short()),
            false => cell(value.short()),
        });
        std::iter::once(cell(name)).chain(figures).collect()
    };
    table(&heads, &rows.map(row).collect::<Vec<_>>())
}

/// One row for each test.
pub(super) fn results(found: &Found) -> String {
    let shapes = differences(found.tests.iter().map(|(run, _)| run));
    let named = found.tests.iter().zip(&shapes).map(|((run, result), shape)| {
        (format!("{} {shape}", result.title).trim_end().to_owned(), run, result)
    });
    of_results("test", columns::of_tests(Percentiles::USUAL), named)
}

/// Both servers of a comparison, which have these names.
pub(super) fn sides(found: &Found, comparison: &Comparison, names: &[String; 2]) -> String {
    let sides = comparison.sides.iter().zip(names).zip(&found.compared);
    let rows = sides.map(|((side, name), run)| (name.clone(), run, &side.total));
    of_results("server", columns::of_sides(Percentiles::USUAL), rows)
}

/// Both sides of each test of each cell.
pub(super) fn cells(evidence: &Evidence) -> String {
    let rows = evidence.comparisons().flat_map(|(cell, comparison)| {
        let sides = comparison.sides.iter().zip(cell.names()).zip(&cell.sides);
        let label = cell.label(&comparison.title);
        sides.map(move |((side, name), run)| (format!("{label}, {name}"), run, &side.total))
    });
    of_results("cell", columns::of_sides(Percentiles::USUAL), rows)
}

/// A table of two columns.
pub(super) fn pairs(heads: [&str; 2], rows: &[[String; 2]]) -> String {
    table(&heads, &rows.iter().map(|row| row.each_ref().map(cell).to_vec()).collect::<Vec<_>>())
}

/// What was checked, and what was found wrong.
pub(super) fn verified(found: &Found) -> String {
    let level = runs(found).next().map_or(Verify::Length, |run| run.verify);
    let checked = match level {
        Verify::Length => "type and length of each reply (--verify length; full compares every byte)",
        Verify::Full => "every byte of each reply (--verify full)",
    };
    let results = judged(found);
    let replies: u64 = results.iter().map(|result| result.replies()).sum();
    let mut rows = vec![
        ("replies that came", replies.to_string()),
        ("checked of each", checked.to_owned()),
        ("connections lost", results.iter().map(|result| result.lost).sum::<u64>().to_string()),
        (
            "times without any connection",
            results.iter().map(|result| result.outages.len()).sum::<usize>().to_string(),
        ),
    ];
    for result in &results {
        for (kind, count) in result.tally.faults.counts() {
            rows.push(("wrong", format!("{}: {kind}, {count} times", result.title)));
        }
        rows.extend(
            result
                .tally
                .faults
                .first()
                .iter()
                .map(|fault| ("for example", format!("{}: {fault}", result.title))),
        );
        rows.extend(result.tally.faults.advice().map(|advice| ("what to do", advice.to_owned())));
    }
    if rows.len() == 4 {
        rows.push(("wrong or missing", "0".to_owned()));
    }
    facts(&rows)
}

/// Names and values.
pub(super) fn facts(rows: &[(&str, String)]) -> String {
    let row =
        |(name, value): &(&str, String)| format!("<tr><th>{}</th><td>{}</td></tr>", Text(name), Text(value));
    format!(
        "<div class=\"wide\"><table class=\"facts\"><tbody>{}</tbody></table></div>\n",
        rows.iter().map(row).collect::<String>()
    )
}

/// What was measured, on what and how: one table for each server, and what varied in a matrix.
pub(super) fn settings(found: &Found) -> String {
    let mut seen: Vec<&str> = Vec::new();
    let mut all = String::new();
    for run in runs(found) {
        if seen.contains(&run.target.as_str()) {
            continue;
        }
        seen.push(&run.target);
        all.push_str(&facts(&of_run(run, !found.sweeps.is_empty())));
    }
    let shapes = differences(found.tests.iter().map(|(run, _)| run));
    if shapes.iter().any(|shape| !shape.is_empty()) {
        all.push_str("<p class=\"soft\">The table shows the first combination of the matrix. The names of results show what varied.</p>\n");
    }
    all
}

fn of_run(run: &RunInfo, swept: bool) -> Vec<(&'static str, String)> {
    let shape = &run.shape;
    let mut rows = vec![
        ("server", run.target.clone()),
        ("transport", format!("{}, {}", run.transport, run.link)),
        ("connections", shape.connections.to_string()),
        (
            "each driven by",
            shape.tasks_per_connection.map_or("one task, directly".to_owned(), |tasks| {
                format!("{tasks} tasks, through the client library")
            }),
        ),
        ("requests at a time (-P)", shape.pipeline.to_string()),
        ("threads", shape.threads.to_string()),
        ("bytes of values", shape.sizes.clone()),
        ("keys (-r)", shape.keyspace.map_or("one".to_owned(), |keys| keys.to_string())),
    ];
    if let Some(order) = &shape.key_order {
        rows.push(("keys drawn", order.clone()));
    }
    if let Some(seed) = shape.seed {
        rows.push(("seed of the keys", seed.to_string()));
    }
    rows.push((
        "schedule",
        match run.pace {
            _ if swept => "rising rates (--sweep)".to_owned(),
            Pace::Closed => "none: the next request follows the reply".to_owned(),
            Pace::Open { rate, arrivals } => {
                format!("{rate} requests/s, {arrivals:?} arrivals").to_lowercase()
            }
        },
    ));
    rows.push(("all connections open after", format!("{} ms", ms(run.connect_time.as_secs_f64() * 1e3))));
    rows.extend(
        run.environment
            .facts
            .iter()
            .filter(|(name, _)| *name != "server")
            .map(|(name, value)| (*name, value.clone())),
    );
    rows
}
