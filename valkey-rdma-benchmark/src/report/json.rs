//! Everything as JSON, for programs.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Map, Value, json};
use valkey_rdma_program::millis;

use super::columns::{COLUMNS, Row, Value as Figure};
use crate::drive::{Choice, Pace};
use crate::measure::{
    CellFound, Comparison, Environment, Evidence, Found, Latencies, Ratio, RunInfo, Series, Shape, Side,
    Sweep, TestResult,
};

/// The quantiles that are written.
const QUANTILES: [(&str, f64); 8] = [
    ("p25", 0.25),
    ("p50", 0.5),
    ("p75", 0.75),
    ("p90", 0.9),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p99_9", 0.999),
    ("p99_99", 0.9999),
];

/// Writes all that was found.
pub(crate) fn write(out: &mut dyn Write, found: &Found) -> io::Result<()> {
    let tests: Vec<Value> = found.tests.iter().map(|(run, result)| test(run, result)).collect();
    let sweeps: Vec<Value> = found.sweeps.iter().map(|(run, sweep)| self::sweep(run, sweep)).collect();
    let comparisons: Vec<Value> =
        found.comparisons.iter().map(|compared| comparison(&found.compared, compared)).collect();
    let servers: Vec<Value> = found.compared.iter().map(run).collect();
    let mut all = Map::new();
    all.insert("format".to_owned(), json!(1));
    all.insert("interrupted".to_owned(), json!(found.interrupted));
    for (name, values) in
        [("tests", tests), ("sweeps", sweeps), ("servers", servers), ("comparisons", comparisons)]
    {
        if !values.is_empty() {
            all.insert(name.to_owned(), Value::Array(values));
        }
    }
    serde_json::to_writer_pretty(&mut *out, &Value::Object(all))?;
    writeln!(out)
}

/// Writes a run of `--evidence`.
pub(crate) fn write_evidence(out: &mut dyn Write, evidence: &Evidence) -> io::Result<()> {
    let about = &evidence.about;
    let server: Map<String, Value> =
        about.server.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let all = json!({
        "format": 1,
        "kind": "evidence",
        "interrupted": evidence.interrupted,
        "command": about.command,
        "rounds": about.rounds,
        "seconds_per_round": about.turn.as_secs_f64(),
        "client": environment(&about.client),
        "server": server,
        "machine": about.machine,
        "cells_chosen": evidence.chosen,
        "cells": evidence.cells.iter().map(cell).collect::<Vec<_>>(),
    });
    serde_json::to_writer_pretty(&mut *out, &all)?;
    writeln!(out)
}

fn cell(cell: &CellFound) -> Value {
    let published =
        cell.published.map(|published| json!({ "figures": published.figures, "source": published.source }));
    let failed = cell.failed.iter().map(|(test, reason)| json!({ "test": test, "reason": reason }));
    json!({
        "cell": cell.name,
        "way": cell.way,
        "published": published,
        "servers": cell.sides.iter().map(run).collect::<Vec<_>>(),
        "comparisons": cell.comparisons.iter().map(|compared| comparison(&cell.sides, compared)).collect::<Vec<_>>(),
        "failed": failed.collect::<Vec<_>>(),
    })
}

fn environment(environment: &Environment) -> Map<String, Value> {
    environment.facts.iter().map(|(name, value)| ((*name).replace(' ', "_"), json!(value))).collect()
}

fn run(run: &RunInfo) -> Value {
    json!({
        "server": run.target,
        "transport": run.transport,
        "link": run.link,
        "connect_ms": millis(run.connect_time),
        "shape": shape(&run.shape),
        "environment": environment(&run.environment),
    })
}

fn shape(shape: &Shape) -> Value {
    json!({
        "connections": shape.connections,
        "tasks_per_connection": shape.tasks_per_connection,
        "library": shape.library.as_ref().map(Choice::name),
        "pipeline": shape.pipeline,
        "threads": shape.threads,
        "runtime_threads": shape.runtime_threads,
        "data_bytes": shape.sizes,
        "keyspace": shape.keyspace,
        "key_order": shape.key_order,
        "seed": shape.seed,
    })
}

fn test(info: &RunInfo, result: &TestResult) -> Value {
    let mut value = measured(info, result);
    value["run"] = run(info);
    if let Some(share) = result.share_of_link(info) {
        value["share_of_link"] = json!(share);
    }
    value
}

fn measured(info: &RunInfo, result: &TestResult) -> Value {
    let tally = &result.tally;
    let pace = match result.pace {
        Pace::Closed => Value::Null,
        Pace::Open { rate, arrivals } => {
            json!({ "requests_per_second": rate, "arrivals": format!("{arrivals:?}").to_lowercase() })
        }
    };
    let errors: Map<String, Value> =
        tally.faults.counts().map(|(kind, count)| (kind.to_string(), json!(count))).collect();
    let parts: Vec<Value> = result
        .parts
        .iter()
        .zip(&tally.parts)
        .map(|(title, part)| json!({ "test": title, "latency_ms": latencies(part) }))
        .collect();
    let outages: Vec<Value> = result
        .outages
        .iter()
        .map(|outage| json!({ "from_s": outage.from.as_secs_f64(), "to_s": outage.to.map(|to| to.as_secs_f64()) }))
        .collect();
    let mut value = json!({
        "elapsed_s": result.elapsed.as_secs_f64(),
        "open_loop": pace,
        "latency_ms": latencies(result.latencies()),
        "service_time_ms": tally.corrected.as_ref().map(|_| latencies(&tally.service)),
        "parts": parts,
        "errors": errors,
        "first_errors": tally.faults.first().iter().map(ToString::to_string).collect::<Vec<_>>(),
        "advice": tally.faults.advice(),
        "outages": outages,
        "client_cpu_us_per_request": { "user": per_request(result, result.usage.user), "system": per_request(result, result.usage.system) },
        "client_sleeps_per_request": result.usage.sleeps as f64 / result.replies().max(1) as f64,
        "counters_per_request": counters(result),
        "rate_step_s": Series::STEP.as_secs_f64(),
        "rate_over_time": tally.series.rates().collect::<Vec<_>>(),
    });
    let row = Row::of(info, result);
    for (name, column) in COLUMNS.iter().filter_map(|column| Some((column.json?, column))) {
        value[name] = number((column.of)(&row));
    }
    value
}

/// A figure of a column.
fn number(figure: Figure) -> Value {
    match figure {
        Figure::None => Value::Null,
        Figure::Text(text) => json!(text),
        Figure::Count(count) | Figure::Wrong(count) => json!(count),
        Figure::Latency(latency) => json!(millis(latency)),
        Figure::PerSecond(value)
        | Figure::BytesPerSecond(value)
        | Figure::Micros(value)
        | Figure::Cores(value)
        | Figure::PerRequest(value) => {
            json!(value)
        }
    }
}

fn per_request(result: &TestResult, time: Duration) -> f64 {
    time.as_secs_f64() * 1e6 / result.replies().max(1) as f64
}

fn counters(result: &TestResult) -> Option<Map<String, Value>> {
    let counters = result.per_request()?;
    Some(
        counters
            .all()
            .map(|(counter, value)| (counter.name().replace([' ', '-'], "_"), json!(value)))
            .collect(),
    )
}

fn latencies(latencies: &Latencies) -> Value {
    let mut value = json!({ "mean": millis(latencies.mean()), "min": millis(latencies.min()), "max": millis(latencies.max()) });
    for (name, quantile) in QUANTILES {
        value[name] = json!(millis(latencies.quantile(quantile)));
    }
    value
}

fn comparison(compared: &[RunInfo], comparison: &Comparison) -> Value {
    let side = |(side, info): (&Side, &RunInfo)| {
        let mut value = measured(info, &side.total);
        value["rounds"] = side
            .rounds
            .iter()
            .map(|round| {
                json!({
                    "requests_per_second": round.rate,
                    "p50_ms": round.p50 * 1e3,
                    "p99_ms": round.p99 * 1e3,
                    "client_cpu_us_per_request": round.cpu,
                    "server_cpu_us_per_request": round.server_cpu,
                })
            })
            .collect();
        value
    };
    let ratio = |ratio: Ratio| json!({ "ratio": ratio.mean, "low_95": ratio.low, "high_95": ratio.high });
    json!({
        "test": comparison.title,
        "shape": shape(&comparison.shape),
        "sides": comparison.sides.iter().zip(compared).map(side).collect::<Vec<_>>(),
        "ratios": {
            "requests_per_second": ratio(comparison.ratio(|round| round.rate)),
            "p50": ratio(comparison.ratio(|round| round.p50)),
            "p99": ratio(comparison.ratio(|round| round.p99)),
            "client_cpu_per_request": ratio(comparison.ratio(|round| round.cpu)),
            "server_cpu_per_request": ratio(comparison.ratio(|round| round.server_cpu)),
        },
    })
}

fn sweep(info: &RunInfo, sweep: &Sweep) -> Value {
    let steps: Vec<Value> = sweep
        .steps
        .iter()
        .map(|step| {
            let mut value = measured(info, &step.result);
            value["good"] = json!(step.is_good());
            value["verdict"] = json!(step.verdict.name());
            value
        })
        .collect();
    json!({
        "test": sweep.title,
        "run": run(info),
        "closed_loop": measured(info, &sweep.closed),
        "p99_limit_ms": sweep.limit.map(millis),
        "best_requests_per_second": sweep.best().map(|step| step.rate),
        "is_lower_bound": sweep.best().is_some() && sweep.is_open_ended(),
        "steps": steps,
    })
}
