//! The default report: the server that was measured, a row per test, and the transport's counters per request.

use std::io::{self, Write};

use super::{Percentiles, Style, millis};
use crate::counters::Counter;
use crate::generator::Pace;
use crate::measure::Latencies;
use crate::result::{RunInfo, Shape, TestResult};

/// Columns of the result rows after the test's name, each with its width.
fn columns(percentiles: Percentiles) -> Vec<(String, usize)> {
    let column = |(name, width): (&str, usize)| (name.to_owned(), width);
    let mut columns: Vec<_> = [("requests/s", 13), ("MB/s", 10), ("mean ms", 10)].map(column).into();
    columns.extend(percentiles.iter().map(|percentile| {
        let name = format!("p{percentile} ms");
        let width = name.len().max(10);
        (name, width)
    }));
    columns.extend([("max ms", 10), ("CPU us", 8), ("replies", 11), ("errors", 8)].map(column));
    columns
}

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
    for (name, width) in columns(percentiles) {
        write!(out, " {}", style.bold(format_args!("{name:>width$}")))?;
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
    let facts = run.environment.facts.iter().filter(|fact| fact.0 != "device" && fact.0 != "mtu");
    let shown: Vec<String> = facts
        .map(|(name, value)| match *name {
            "tool" | "server" | "kernel" | "machine" | "cpu" => value.clone(),
            "cpus" => format!("{value} CPUs"),
            name => format!("{name} {value}"),
        })
        .collect();
    writeln!(out, "{} {}", style.bold("measured   "), shown.join(", "))
}

pub(super) fn write_test(
    out: &mut dyn Write,
    run: &RunInfo,
    result: &TestResult,
    style: Style,
    latency_form: (usize, Percentiles),
) -> io::Result<()> {
    let errors = result.tally.faults.total();
    let cpu = format!("{:.2}", result.cpu_per_request());
    let payload = match result.payload_rate() {
        0.0 => "-".to_owned(),
        rate => format!("{:.2}", rate / 1e6),
    };
    let service = &result.tally.service;
    let rate = format!("{:.2}", result.rate());
    let last = [cpu, result.replies().to_string(), errors.to_string()];
    write_row(out, &result.title, [rate, payload], result.latencies(), last, style, latency_form)?;
    if result.tally.corrected.is_some() {
        let empty = || "-".to_owned();
        write_row(
            out,
            "  service time",
            [empty(), empty()],
            service,
            [empty(), empty(), "".to_owned()],
            style,
            latency_form,
        )?;
    }
    for (title, part) in result.parts.iter().zip(&result.tally.parts) {
        let share = part.count() as f64 / result.replies().max(1) as f64;
        let rate = format!("{:.2}", result.rate() * share);
        let last = ["-".to_owned(), part.count().to_string(), String::new()];
        write_row(out, &format!("  {title}"), [rate, "-".to_owned()], part, last, style, latency_form)?;
    }
    if result.connects.count() > 0 {
        let empty = String::new;
        let last = [empty(), result.connects.count().to_string(), empty()];
        write_row(out, "  connecting", [empty(), empty()], &result.connects, last, style, latency_form)?;
    }
    match run.environment.link_speed() {
        Some(speed) if result.link_rate() > speed / 100.0 => {
            writeln!(
                out,
                "  {:.1} % of the link's {:.1} GB/s",
                result.link_rate() / speed * 100.0,
                speed / 1e9
            )
        }
        _ => Ok(()),
    }
}

/// Writes a row: the name, two cells, the latencies, and the last three cells, of which the errors are red.
fn write_row(
    out: &mut dyn Write,
    name: &str,
    first: [String; 2],
    latencies: &Latencies,
    last: [String; 3],
    style: Style,
    (precision, percentiles): (usize, Percentiles),
) -> io::Result<()> {
    let ms = |duration| format!("{:.precision$}", millis(duration));
    let quantiles = percentiles.iter().map(|percentile| latencies.quantile(percentile / 100.0));
    let middle = std::iter::once(latencies.mean()).chain(quantiles).chain([latencies.max()]).map(ms);
    let wrong = last[2].parse::<u64>().is_ok_and(|errors| errors > 0);
    let cells = first.into_iter().chain(middle).chain(last);
    if name.chars().count() > NAME_WIDTH {
        // A long title has a line of its own, so that the columns stay where they are.
        write!(out, "{name}\n{:NAME_WIDTH$}", "")?;
    } else {
        write!(out, "{name:NAME_WIDTH$}")?;
    }
    let columns = columns(percentiles);
    let last_column = columns.len() - 1;
    for (number, (cell, (_, width))) in cells.zip(columns).enumerate() {
        if number == last_column && wrong {
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

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
