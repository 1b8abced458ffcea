//! The default report: the server that was measured, a row per test, and the transport's counters per request.

use std::io::{self, Write};

use valkey_rdma_program::{millis, plural};

use super::columns::{Row, of_tests};
use super::{Percentiles, Style};
use crate::drive::Pace;
use crate::measure::{Counter, Environment, RunInfo, Shape, TestResult};

/// Width of the column with the test's name.
const NAME_WIDTH: usize = 16;

pub(super) fn write_head(
    out: &mut dyn Write,
    run: &RunInfo,
    style: Style,
    percentiles: Percentiles,
) -> io::Result<()> {
    write_setup(out, run, style)?;
    write!(out, "\n{}", style.bold(format_args!("{:NAME_WIDTH$}", "test")))?;
    for head in of_tests(percentiles).0 {
        write!(out, " {}", style.bold(format_args!("{head:>0$}", width_of(&head))))?;
    }
    writeln!(out)
}

/// Writes what is measured, on what and how.
pub(super) fn write_setup(out: &mut dyn Write, run: &RunInfo, style: Style) -> io::Result<()> {
    let shape = &run.shape;
    writeln!(out, "{} {}", style.bold("server     "), run.target)?;
    writeln!(out, "{} {}, {}", style.bold("transport  "), run.transport, run.link)?;
    write_environment(out, run, style)?;
    let driven = match shape.tasks_per_connection {
        Some(tasks) => format!("{} on each", plural(tasks, "task")),
        None => "driven directly".to_owned(),
    };
    writeln!(
        out,
        "{} {}, {driven}; all open after {:.3} ms",
        style.bold("connections"),
        shape.connections,
        millis(run.connect_time)
    )?;
    writeln!(
        out,
        "{} {} at a time, values of {} bytes, {}, {}{}",
        style.bold("requests   "),
        shape.pipeline,
        shape.sizes,
        match shape.keyspace {
            Some(keys) => format!("{keys} keys ({})", drawn(shape)),
            None => "one key".to_owned(),
        },
        plural(shape.threads, "thread"),
        match run.pace {
            Pace::Closed => String::new(),
            Pace::Open { rate, arrivals } => format!(", {rate}/s intended ({arrivals:?})").to_lowercase(),
        },
    )
}

/// How keys are drawn, and with which seed.
fn drawn(shape: &Shape) -> String {
    let seed = shape.seed.map(|seed| format!("--seed {seed}"));
    shape.key_order.iter().cloned().chain(seed).collect::<Vec<_>>().join(", ")
}

/// Writes where this is measured, in one line.
pub(super) fn write_environment(out: &mut dyn Write, run: &RunInfo, style: Style) -> io::Result<()> {
    writeln!(out, "{} {}", style.bold("measured   "), shown_facts(&run.environment).join(", "))
}

/// What is known of where something is measured, but for the link.
pub(super) fn shown_facts(environment: &Environment) -> Vec<String> {
    let facts = environment.facts.iter().filter(|fact| fact.0 != "device" && fact.0 != "mtu");
    let shown = facts.map(|(name, value)| match *name {
        "tool" | "server" | "kernel" | "machine" | "cpu" => value.clone(),
        "cpus" => format!("{value} CPUs"),
        name => format!("{name} {value}"),
    });
    shown.collect()
}

pub(super) fn write_test(
    out: &mut dyn Write,
    run: &RunInfo,
    result: &TestResult,
    style: Style,
    latency_form: (usize, Percentiles),
) -> io::Result<()> {
    write_row(out, &Row::of(run, result), style, latency_form)?;
    for part in Row::parts(run, result) {
        write_row(out, &part, style, latency_form)?;
    }
    match (result.share_of_link(run), run.environment.link_speed()) {
        (Some(share), Some(speed)) if share > 0.01 => {
            writeln!(out, "  {:.1} % of the link's {:.1} GB/s", share * 100.0, speed / 1e9)
        }
        _ => Ok(()),
    }
}

/// Width of a column of figures.
fn width_of(head: &str) -> usize {
    head.len().max(11)
}

/// Writes a row. A number of errors is red.
fn write_row(
    out: &mut dyn Write,
    row: &Row<'_>,
    style: Style,
    (digits, percentiles): (usize, Percentiles),
) -> io::Result<()> {
    let name = &row.title;
    if name.chars().count() > NAME_WIDTH {
        // A long title has a line of its own, so that the columns stay where they are.
        write!(out, "{name}\n{:NAME_WIDTH$}", "")?;
    } else {
        write!(out, "{name:NAME_WIDTH$}")?;
    }
    let (heads, values) = of_tests(percentiles);
    for (head, value) in heads.iter().zip(values(row)) {
        let (cell, width) = (value.cell(digits), width_of(head));
        if value.is_bad() {
            write!(out, " {}", style.red(format_args!("{cell:>width$}")))?;
        } else {
            write!(out, " {cell:>width$}")?;
        }
    }
    writeln!(out)
}

pub(super) fn write_tail(out: &mut dyn Write, results: &[TestResult], style: Style) -> io::Result<()> {
    let counted: Vec<_> = results.iter().filter_map(|result| Some((result, result.per_request()?))).collect();
    if counted.is_empty() {
        return Ok(());
    }
    write!(out, "\n{}", style.bold(format_args!("{:20}", "per request")))?;
    for (result, _) in &counted {
        write!(out, " {}", style.bold(format_args!("{:>12.12}", result.title)))?;
    }
    writeln!(out)?;
    for counter in Counter::ALL {
        write!(out, "{:20}", counter.name())?;
        for (_, counters) in &counted {
            write!(out, " {:>12.3}", counters.of(counter))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
