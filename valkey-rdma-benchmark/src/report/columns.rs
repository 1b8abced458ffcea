//! The columns of reports. A figure of a result has one place, a row of [`COLUMNS`]: the table of tests, the page, a sweep's table, CSV and
//! JSON take their columns from there.

use std::time::Duration;

use valkey_rdma_program::millis;

use super::Percentiles;
use super::numbers::ms;
use crate::drive::Pace;
use crate::measure::{Counter, Latencies, RunInfo, TestResult};

/// What a line of a table is about: a test, or a part of one.
pub(super) struct Row<'a> {
    pub(super) title: String,
    run: &'a RunInfo,
    /// `None`: a part, which has no figures but these.
    whole: Option<&'a TestResult>,
    rate: Option<f64>,
    latencies: &'a Latencies,
    replies: Option<u64>,
}

impl<'a> Row<'a> {
    /// A test as a whole.
    pub(super) fn of(run: &'a RunInfo, result: &'a TestResult) -> Row<'a> {
        Row {
            title: result.title.clone(),
            run,
            whole: Some(result),
            rate: Some(result.rate()),
            latencies: result.latencies(),
            replies: Some(result.replies()),
        }
    }

    /// The service times of a test with a schedule, the commands of a mix, and connecting anew.
    pub(super) fn parts(run: &'a RunInfo, result: &'a TestResult) -> Vec<Row<'a>> {
        let part = |title: &str, rate, latencies, replies| Row {
            title: format!("  {title}"),
            run,
            whole: None,
            rate,
            latencies,
            replies,
        };
        let scheduled = result.tally.corrected.is_some();
        let service = scheduled.then(|| part("service time", None, &result.tally.service, None));
        let of_mix = result.parts.iter().zip(&result.tally.parts).map(|(title, latencies)| {
            let share = latencies.count() as f64 / result.replies().max(1) as f64;
            part(title, Some(result.rate() * share), latencies, Some(latencies.count()))
        });
        let connects = &result.connects;
        let connecting =
            (connects.count() > 0).then(|| part("connecting", None, connects, Some(connects.count())));
        service.into_iter().chain(of_mix).chain(connecting).collect()
    }
}

/// A figure with its unit.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// It does not apply.
    None,
    Text(String),
    Count(u64),
    /// A number of faults: more than none is bad.
    Wrong(u64),
    PerSecond(f64),
    BytesPerSecond(f64),
    Latency(Duration),
    /// Microseconds for each request.
    Micros(f64),
    /// A number of processors.
    Cores(f64),
    PerRequest(f64),
}

impl<T: ToString> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::None, |value| Value::Text(value.to_string()))
    }
}

impl Value {
    /// As a cell of the table of tests, with `digits` for latencies.
    pub(super) fn cell(&self, digits: usize) -> String {
        match self {
            Value::None => "-".to_owned(),
            Value::BytesPerSecond(rate) => format!("{:.2}", rate / 1e6),
            Value::Micros(value) | Value::Cores(value) => format!("{value:.2}"),
            other => other.csv(digits),
        }
    }

    /// As a cell for people who compare: rates without decimals, latencies with three digits.
    pub(super) fn short(&self) -> String {
        match self {
            Value::PerSecond(rate) => format!("{rate:.0}"),
            Value::Latency(latency) => ms(millis(*latency)),
            other => other.cell(3),
        }
    }

    /// As a field of CSV, with `digits` for latencies.
    pub(super) fn csv(&self, digits: usize) -> String {
        match self {
            Value::None => String::new(),
            Value::Text(text) => text.clone(),
            Value::Count(count) | Value::Wrong(count) => count.to_string(),
            Value::PerSecond(rate) => format!("{rate:.2}"),
            Value::BytesPerSecond(rate) => format!("{rate:.0}"),
            Value::Latency(latency) => format!("{:.digits$}", millis(*latency)),
            Value::Micros(value) | Value::Cores(value) => format!("{value:.3}"),
            Value::PerRequest(value) => format!("{value:.4}"),
        }
    }

    /// Whether something was wrong.
    pub(super) fn is_bad(&self) -> bool {
        matches!(self, Value::Wrong(1..))
    }
}

/// A figure: its names, and its value.
pub(super) struct Column {
    /// Over a table, with the unit.
    pub(super) head: &'static str,
    /// Its place and its name in CSV: valkey-benchmark's columns have the first ones.
    pub(super) csv: Option<(usize, &'static str)>,
    /// Its name in JSON, if that is not a part of another value.
    pub(super) json: Option<&'static str>,
    /// Whether the table of tests has it.
    of_tests: bool,
    /// Whether the table of the two sides of a comparison has it, beside those of the table of tests.
    of_sides: bool,
    /// The value.
    pub(super) of: fn(&Row<'_>) -> Value,
}

impl Column {
    const fn new(head: &'static str, of: fn(&Row<'_>) -> Value) -> Column {
        Column { head, csv: None, json: None, of_tests: false, of_sides: false, of }
    }

    const fn of_tests(self) -> Column {
        Column { of_tests: true, ..self }
    }

    const fn of_sides(self) -> Column {
        Column { of_sides: true, ..self }
    }

    const fn csv(self, place: usize, name: &'static str) -> Column {
        Column { csv: Some((place, name)), ..self }
    }

    const fn json(self, name: &'static str) -> Column {
        Column { json: Some(name), ..self }
    }
}

/// All figures but the transport's counters, in the order of tables.
#[rustfmt::skip]
pub(super) const COLUMNS: [Column; 31] = [
    Column::new("test", |row| Value::Text(row.title.clone())).csv(0, "test").json("test"),
    Column::new("intended/s", |row| match row.whole.map(|result| result.pace) {
        Some(Pace::Open { rate, .. }) => Value::PerSecond(rate),
        _ => Value::None,
    }).csv(19, "intended_rps"),
    Column::new("requests/s", |row| row.rate.map_or(Value::None, Value::PerSecond))
        .of_tests().csv(1, "rps").json("requests_per_second"),
    Column::new("MB/s", |row| match row.whole.map(TestResult::payload_rate) {
        None | Some(0.0) => Value::None,
        Some(rate) => Value::BytesPerSecond(rate),
    }).of_tests(),
    Column::new("payload B/s", |row| whole(row, |result| Value::BytesPerSecond(result.payload_rate())))
        .csv(22, "payload_bytes_per_second").json("payload_bytes_per_second"),
    Column::new("mean ms", |row| Value::Latency(row.latencies.mean())).of_tests().csv(2, "avg_latency_ms"),
    Column::new("min ms", |row| Value::Latency(row.latencies.min())).csv(3, "min_latency_ms"),
    Column::new("p50 ms", |row| Value::Latency(row.latencies.quantile(0.5))).csv(4, "p50_latency_ms"),
    Column::new("p95 ms", |row| Value::Latency(row.latencies.quantile(0.95))).csv(5, "p95_latency_ms"),
    Column::new("p99 ms", |row| Value::Latency(row.latencies.quantile(0.99))).csv(6, "p99_latency_ms"),
    Column::new("p99.9 ms", |row| Value::Latency(row.latencies.quantile(0.999))).csv(8, "p99_9_latency_ms"),
    Column::new("max ms", |row| Value::Latency(row.latencies.max())).of_tests().csv(7, "max_latency_ms"),
    Column::new("service p50", |row| whole(row, |result| Value::Latency(result.tally.service.quantile(0.5))))
        .csv(20, "service_p50_ms"),
    Column::new("service p99", |row| whole(row, |result| Value::Latency(result.tally.service.quantile(0.99))))
        .csv(21, "service_p99_ms"),
    Column::new("CPU us", |row| whole(row, |result| Value::Micros(result.cpu_per_request())))
        .of_tests().csv(23, "client_cpu_us_per_request"),
    Column::new("cores", |row| whole(row, |result| Value::Cores(result.cores())))
        .of_sides().csv(27, "client_cores").json("client_cores"),
    Column::new("server CPU us", |row| whole(row, |result| {
        result.server_cpu_per_request().map_or(Value::None, Value::Micros)
    })).of_sides().csv(28, "server_cpu_us_per_request").json("server_cpu_us_per_request"),
    Column::new("server cores", |row| whole(row, |result| result.server_cores().map_or(Value::None, Value::Cores)))
        .of_sides().csv(29, "server_cores").json("server_cores"),
    Column::new("replies", |row| row.replies.map_or(Value::None, Value::Count))
        .of_tests().csv(9, "replies").json("replies"),
    Column::new("errors", |row| whole(row, |result| Value::Wrong(result.tally.faults.total())))
        .of_tests().csv(10, "errors"),
    Column::new("lost", |row| whole(row, |result| Value::Count(result.lost)))
        .csv(24, "connections_lost").json("connections_lost"),
    Column::new("transport", |row| Value::Text(row.run.transport.clone())).csv(11, "transport"),
    Column::new("TLS", |row| Value::from(row.run.tls.as_ref())).csv(25, "tls").json("tls"),
    Column::new("way", |row| Value::Text(row.run.shape.way().to_owned())).csv(26, "way").json("way"),
    Column::new("connections", |row| Value::Count(row.run.shape.connections as u64)).csv(12, "connections"),
    Column::new("tasks each", |row| Value::from(row.run.shape.tasks_per_connection)).csv(13, "tasks_per_connection"),
    Column::new("pipeline", |row| Value::Count(row.run.shape.pipeline as u64)).csv(14, "pipeline"),
    Column::new("threads", |row| Value::Count(row.run.shape.threads as u64)).csv(15, "threads"),
    Column::new("bytes", |row| Value::Text(row.run.shape.sizes.clone())).csv(16, "data_bytes"),
    Column::new("keys", |row| Value::Count(row.run.shape.keyspace.map_or(1, |keys| keys.get()))).csv(17, "keyspace"),
    Column::new("connect ms", |row| Value::Latency(row.run.connect_time)).csv(18, "connect_ms"),
];

fn whole(row: &Row<'_>, of: fn(&TestResult) -> Value) -> Value {
    row.whole.map_or(Value::None, of)
}

/// The columns of the table of tests after the test's name: heads and values. The percentiles stand before the longest latency.
pub(super) fn of_tests(percentiles: Percentiles) -> (Vec<String>, impl Fn(&Row<'_>) -> Vec<Value>) {
    with_percentiles(|column| column.of_tests, percentiles)
}

/// The columns of the table of the two sides of a comparison, likewise.
pub(super) fn of_sides(percentiles: Percentiles) -> (Vec<String>, impl Fn(&Row<'_>) -> Vec<Value>) {
    with_percentiles(|column| column.of_tests || column.of_sides, percentiles)
}

fn with_percentiles(
    is_shown: fn(&Column) -> bool,
    percentiles: Percentiles,
) -> (Vec<String>, impl Fn(&Row<'_>) -> Vec<Value>) {
    let fixed: Vec<&Column> = COLUMNS.iter().filter(|column| is_shown(column)).collect();
    let before = fixed.iter().position(|column| column.head == "max ms").unwrap_or(fixed.len());
    let mut heads: Vec<String> = fixed.iter().map(|column| column.head.to_owned()).collect();
    heads.splice(before..before, percentiles.iter().map(|percentile| format!("p{percentile} ms")));
    let values = move |row: &Row<'_>| {
        let mut values: Vec<Value> = fixed.iter().map(|column| (column.of)(row)).collect();
        let of = |percentile: f64| Value::Latency(row.latencies.quantile(percentile / 100.0));
        values.splice(before..before, percentiles.iter().map(of));
        values
    };
    (heads, values)
}

/// Names and values of the counters for each request.
pub(super) fn counters(result: Option<&TestResult>) -> impl Iterator<Item = (String, Value)> {
    let counters = result.and_then(TestResult::per_request);
    Counter::ALL.into_iter().map(move |counter| {
        let value = counters.map_or(Value::None, |counters| Value::PerRequest(counters.of(counter)));
        (counter.name().replace(['-', ' '], "_"), value)
    })
}
