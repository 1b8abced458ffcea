//! CSV: the header and columns of `valkey-benchmark --csv` first, so that its readers work; ours after them.

use std::io::{self, Write};

use super::millis;
use crate::counters::Counter;
use crate::generator::Pace;
use crate::result::{RunInfo, TestResult};

/// valkey-benchmark's columns.
const THEIRS: [&str; 8] = [
    "test",
    "rps",
    "avg_latency_ms",
    "min_latency_ms",
    "p50_latency_ms",
    "p95_latency_ms",
    "p99_latency_ms",
    "max_latency_ms",
];

/// Our columns before the counters.
const OURS: [&str; 17] = [
    "p99_9_latency_ms",
    "replies",
    "errors",
    "transport",
    "connections",
    "tasks_per_connection",
    "pipeline",
    "threads",
    "data_bytes",
    "keyspace",
    "connect_ms",
    "intended_rps",
    "service_p50_ms",
    "service_p99_ms",
    "payload_bytes_per_second",
    "client_cpu_us_per_request",
    "connections_lost",
];

pub(super) fn write_head(out: &mut dyn Write) -> io::Result<()> {
    let counters =
        Counter::ALL.map(|counter| format!("{}_per_request", counter.name().replace(['-', ' '], "_")));
    let columns = THEIRS.iter().chain(&OURS).map(|&name| name.to_owned()).chain(counters);
    write_row(out, columns)
}

pub(super) fn write_test(
    out: &mut dyn Write,
    run: &RunInfo,
    result: &TestResult,
    precision: usize,
) -> io::Result<()> {
    let latencies = result.latencies();
    let service = &result.tally.service;
    let shape = &run.shape;
    let ms = |duration| format!("{:.precision$}", millis(duration));
    let theirs = [
        result.title.clone(),
        format!("{:.2}", result.rate()),
        ms(latencies.mean()),
        ms(latencies.min()),
        ms(latencies.quantile(0.5)),
        ms(latencies.quantile(0.95)),
        ms(latencies.quantile(0.99)),
        ms(latencies.max()),
    ];
    let ours = [
        ms(latencies.quantile(0.999)),
        latencies.count().to_string(),
        result.tally.faults.total().to_string(),
        run.transport.clone(),
        shape.connections.to_string(),
        shape.tasks_per_connection.map_or(String::new(), |tasks| tasks.to_string()),
        shape.pipeline.to_string(),
        shape.threads.to_string(),
        shape.sizes.clone(),
        shape.keyspace.map_or(1, |keys| keys.get()).to_string(),
        ms(run.connect_time),
        match result.pace {
            Pace::Closed => String::new(),
            Pace::Open { rate, .. } => format!("{rate:.2}"),
        },
        ms(service.quantile(0.5)),
        ms(service.quantile(0.99)),
        format!("{:.0}", result.payload_rate()),
        format!("{:.3}", result.cpu_per_request()),
        result.lost.to_string(),
    ];
    let counters = result.per_request();
    let counters =
        Counter::ALL.map(|counter| counters.map_or(String::new(), |all| format!("{:.4}", all.of(counter))));
    write_row(out, theirs.into_iter().chain(ours).chain(counters))
}

fn write_row(out: &mut dyn Write, cells: impl Iterator<Item = String>) -> io::Result<()> {
    for (number, cell) in cells.enumerate() {
        let comma = if number == 0 { "" } else { "," };
        write!(out, "{comma}\"{}\"", cell.replace('"', "\"\""))?;
    }
    writeln!(out)
}
