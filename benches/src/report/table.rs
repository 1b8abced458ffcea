//! The default report: who was measured, a row per test, and the transport's counters per request.

use std::io::{self, Write};

use super::{millis, style::Style};
use crate::counters::Counters;
use crate::result::{RunInfo, Shape, TestResult};
use crate::workload::Test;

/// Columns of the result rows after the test's name, each with its width.
const COLUMNS: [(&str, usize); 9] = [
    ("requests/s", 13),
    ("MB/s", 10),
    ("mean ms", 10),
    ("p50 ms", 10),
    ("p99 ms", 10),
    ("p99.9 ms", 10),
    ("max ms", 10),
    ("replies", 11),
    ("errors", 8),
];

/// Width of the column with the test's name.
const NAME_WIDTH: usize = 12;

pub(super) fn write_head(out: &mut dyn Write, run: &RunInfo, style: Style) -> io::Result<()> {
    let shape = &run.shape;
    writeln!(out, "{} {}", style.bold("server     "), run.target)?;
    writeln!(out, "{} {}, {}", style.bold("transport  "), run.transport, run.link)?;
    writeln!(
        out,
        "{} {}, {} on each; all open after {:.3} ms",
        style.bold("connections"),
        shape.connections,
        plural(shape.tasks_per_connection, "task"),
        millis(run.connect_time)
    )?;
    writeln!(
        out,
        "{} {} at a time, values of {}, {}, {}",
        style.bold("requests   "),
        shape.pipeline,
        plural(shape.value_len, "byte"),
        match shape.keyspace {
            Some(keys) => format!("{keys} random keys"),
            None => "one key".to_owned(),
        },
        plural(shape.threads, "thread"),
    )?;
    write!(out, "\n{:NAME_WIDTH$}", style.bold(format_args!("{:NAME_WIDTH$}", "test")))?;
    for (name, width) in COLUMNS {
        write!(out, " {}", style.bold(format_args!("{name:>width$}")))?;
    }
    writeln!(out)
}

pub(super) fn write_test(
    out: &mut dyn Write,
    run: &RunInfo,
    result: &TestResult,
    style: Style,
) -> io::Result<()> {
    let latencies = &result.latencies;
    let ms = |duration| format!("{:.3}", millis(duration));
    let errors = result.faults.total();
    let cells = [
        format!("{:.2}", result.rate()),
        payload_rate(&run.shape, result).map_or("-".to_owned(), |rate| format!("{rate:.2}")),
        ms(latencies.mean()),
        ms(latencies.quantile(0.5)),
        ms(latencies.quantile(0.99)),
        ms(latencies.quantile(0.999)),
        ms(latencies.max()),
        latencies.count().to_string(),
        errors.to_string(),
    ];
    write!(out, "{:NAME_WIDTH$}", result.test.title())?;
    let last = COLUMNS.len() - 1;
    for (number, (cell, (_, width))) in cells.iter().zip(COLUMNS).enumerate() {
        if number == last && errors > 0 {
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
        write!(out, " {}", style.bold(format_args!("{:>12}", result.test.title())))?;
    }
    writeln!(out)?;
    for (number, name) in Counters::NAMES.iter().enumerate() {
        write!(out, "{name:20}")?;
        for (_, counters) in &counted {
            write!(out, " {:>12.3}", counters[number])?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Values moved per second, in 10^6 bytes.
fn payload_rate(shape: &Shape, result: &TestResult) -> Option<f64> {
    match result.test {
        Test::Ping => None,
        Test::Set | Test::Get => Some(result.rate() * shape.value_len as f64 / 1e6),
    }
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
