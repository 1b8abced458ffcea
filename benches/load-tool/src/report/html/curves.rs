//! What is drawn of latencies and rates.

use crate::compare::Side;
use crate::measure::{Latencies, Series};
use crate::result::{RunInfo, TestResult};

use super::axis::Axis;
use super::chart::{Chart, Line};
use super::text::{ms, short};

/// The farthest percentile drawn, in nines.
const NINES: f64 = 5.0;
/// Places on the axis of percentiles.
const PLACES: u32 = 150;
/// Columns of the distribution.
const BINS: usize = 60;

/// One measurement, to be drawn in one colour.
pub(super) struct Curve<'a> {
    name: String,
    latencies: &'a Latencies,
    rates: Vec<f64>,
    /// Seconds between two rates; `None`: they are rounds.
    step: Option<f64>,
}

impl<'a> Curve<'a> {
    /// A test: what a user feels, and beside it the service time if there is a schedule.
    pub(super) fn of_test(result: &'a TestResult, name: &str) -> Vec<Curve<'a>> {
        let series = &result.tally.series;
        // The last step is hardly ever whole.
        let whole = series.rates().count().saturating_sub(1).max(1);
        let curve = |name: String, latencies, rates| Curve {
            name,
            latencies,
            rates,
            step: Some(Series::STEP.as_secs_f64()),
        };
        let mut curves =
            vec![curve(name.to_owned(), result.latencies(), series.rates().take(whole).collect())];
        if result.tally.corrected.is_some() {
            curves.push(curve(format!("{name}, service time"), &result.tally.service, Vec::new()));
        }
        curves
    }

    /// One server of a comparison, with its rounds.
    pub(super) fn of_side(side: &'a Side, name: &str) -> Curve<'a> {
        let rates = side.rounds.iter().map(|round| round.rate).collect();
        Curve { name: name.to_owned(), latencies: side.total.latencies(), rates, step: None }
    }
}

/// Rate over time, latency by percentile, and the distribution of latencies.
pub(super) fn charts(curves: &[Curve<'_>]) -> String {
    if curves.is_empty() {
        return String::new();
    }
    format!("{}{}{}", rates(curves), percentiles(curves), distribution(curves))
}

fn millis(latency: std::time::Duration) -> f64 {
    latency.as_secs_f64() * 1e3
}

fn rates(curves: &[Curve<'_>]) -> String {
    let lines: Vec<&Curve<'_>> = curves.iter().filter(|curve| !curve.rates.is_empty()).collect();
    let count = lines.iter().map(|curve| curve.rates.len()).max().unwrap_or(0);
    let most = lines.iter().flat_map(|curve| curve.rates.iter().copied()).fold(1.0, f64::max);
    let step = lines.first().and_then(|curve| curve.step);
    let (places, end): (Vec<(f64, String)>, f64) = match step {
        Some(step) => {
            let at = |number: usize| (number as f64 * step, format!("{:.1} s", number as f64 * step));
            ((0..count).map(at).collect(), count.saturating_sub(1).max(1) as f64 * step)
        }
        None => (
            (0..count).map(|round| (round as f64 + 1.0, format!("round {}", round + 1))).collect(),
            count as f64,
        ),
    };
    let x = Axis::linear(if step.is_some() { 0.0 } else { 1.0 }, end);
    let labels = x.ticks().into_iter().filter(|tick| step.is_some() || tick.fract() == 0.0);
    let labels = labels.map(|tick| (tick, format!("{}", (tick * 1000.0).round() / 1000.0))).collect();
    let chart = Chart {
        title: "Requests per second".to_owned(),
        note: if step.is_some() {
            "Over time, in steps of 0.1 s."
        } else {
            "In each round; both servers in turns."
        }
        .to_owned(),
        places,
        x: (x, labels),
        y: Axis::linear(0.0, most * 1.05),
        unit: if step.is_some() { "seconds" } else { "round" },
        show: short,
        suffix: "/s",
        lines: lines
            .iter()
            .map(|curve| Line { name: curve.name.clone(), values: curve.rates.clone() })
            .collect(),
    };
    chart.figure()
}

/// The percentile of `nines`: 99 for 2.
fn percent(nines: f64) -> f64 {
    100.0 * (1.0 - 10f64.powf(-nines))
}

/// Latency against percentile, which is spread so that every nine has the same width.
fn percentiles(curves: &[Curve<'_>]) -> String {
    let filled: Vec<&Curve<'_>> = curves.iter().filter(|curve| curve.latencies.count() > 0).collect();
    // Beyond the last request of the largest measurement there is nothing to see.
    let most_requests = filled.iter().map(|curve| curve.latencies.count()).max().unwrap_or(1);
    let end = (most_requests as f64).log10().clamp(1.0, NINES);
    let at: Vec<f64> = (0..=PLACES).map(|place| f64::from(place) / f64::from(PLACES) * end).collect();
    let lines: Vec<Line> = filled
        .iter()
        .map(|curve| Line {
            name: curve.name.clone(),
            values: at
                .iter()
                .map(|nines| millis(curve.latencies.quantile(percent(*nines) / 100.0)))
                .collect(),
        })
        .collect();
    let labels = (0..=end as u32).map(|nines| {
        let text = match nines {
            0 => "0 %".to_owned(),
            1 => "90 %".to_owned(),
            2 => "99 %".to_owned(),
            more => format!("99.{} %", "9".repeat(more as usize - 2)),
        };
        (f64::from(nines), text)
    });
    let place = |nines: &f64| {
        let percent = percent(*nines);
        let digits = (nines.floor() as usize).saturating_sub(1).max(1);
        (*nines, format!("{percent:.digits$} % of requests took at most"))
    };
    let chart = Chart {
        title: "Latency by percentile".to_owned(),
        note: "Milliseconds, on a logarithmic axis. Each nine has the same width.".to_owned(),
        places: at.iter().map(place).collect(),
        x: (Axis::linear(0.0, end), labels.collect()),
        y: range(&lines),
        unit: "percentile",
        show: ms,
        suffix: " ms",
        lines,
    };
    chart.figure()
}

/// The share of requests in each of some columns, which have the same width on a logarithmic axis.
fn distribution(curves: &[Curve<'_>]) -> String {
    let filled: Vec<&Curve<'_>> = curves.iter().filter(|curve| curve.latencies.count() > 0).collect();
    let low =
        filled.iter().map(|curve| millis(curve.latencies.min())).fold(f64::INFINITY, f64::min).max(1e-4);
    let high = filled.iter().map(|curve| millis(curve.latencies.max())).fold(low * 2.0, f64::max) * 1.01;
    let axis = Axis::logarithmic(low, high);
    let edge = |bin: usize| low * (high / low).powf(bin as f64 / BINS as f64);
    let lines: Vec<Line> = filled
        .iter()
        .map(|curve| {
            let mut shares = vec![0.0; BINS];
            for value in curve.latencies.histogram().iter_recorded() {
                let place = axis.place(value.value_iterated_to() as f64 / 1e6);
                let bin = ((place * BINS as f64) as usize).min(BINS - 1);
                shares[bin] += 100.0 * value.count_at_value() as f64 / curve.latencies.count() as f64;
            }
            Line { name: curve.name.clone(), values: shares }
        })
        .collect();
    let most = lines.iter().flat_map(|line| line.values.iter().copied()).fold(1.0, f64::max);
    let place = |bin| {
        let middle = (edge(bin) * edge(bin + 1)).sqrt();
        (middle, format!("{} to {} ms", ms(edge(bin)), ms(edge(bin + 1))))
    };
    let chart = Chart {
        title: "Distribution of latencies".to_owned(),
        note: "The share of requests in each of 60 columns of a logarithmic axis.".to_owned(),
        places: (0..BINS).map(place).collect(),
        x: (axis, axis.ticks().into_iter().map(|tick| (tick, ms(tick))).collect()),
        y: Axis::linear(0.0, most * 1.05),
        unit: "milliseconds",
        show: |share| format!("{}", (share * 100.0).round() / 100.0),
        suffix: " %",
        lines,
    };
    chart.figure()
}

/// How latencies rise with the rate.
pub(super) fn latency_by_rate(steps: &[(f64, &TestResult)]) -> String {
    let line = |name: &str, quantile: f64| Line {
        name: name.to_owned(),
        values: steps.iter().map(|(_, result)| millis(result.latencies().quantile(quantile))).collect(),
    };
    let lines = vec![line("p50", 0.5), line("p99", 0.99), line("p99.9", 0.999)];
    let end = steps.iter().map(|(rate, _)| *rate).fold(1.0, f64::max);
    let x = Axis::linear(0.0, end);
    let chart = Chart {
        title: "Latency by rate".to_owned(),
        note: "From when a request was meant to be sent.".to_owned(),
        places: steps.iter().map(|(rate, _)| (*rate, format!("{} requests/s", short(*rate)))).collect(),
        x: (x, x.ticks().into_iter().map(|tick| (tick, short(tick))).collect()),
        y: range(&lines),
        unit: "intended requests per second",
        show: ms,
        suffix: " ms",
        lines,
    };
    chart.figure()
}

/// An axis that has room for all values above zero.
fn range(lines: &[Line]) -> Axis {
    let values = || lines.iter().flat_map(|line| line.values.iter().copied()).filter(|value| *value > 0.0);
    let high = values().fold(0.01, f64::max);
    Axis::logarithmic(values().fold(high, f64::min) * 0.9, high * 1.1)
}

/// What distinguishes each run from the others: empty if all have one shape.
pub(super) fn differences<'a>(runs: impl Iterator<Item = &'a RunInfo>) -> Vec<String> {
    let settings: Vec<[(&str, String); 7]> = runs
        .map(|run| {
            let shape = &run.shape;
            [
                ("c", shape.connections.to_string()),
                ("P", shape.pipeline.to_string()),
                ("d", shape.sizes.clone()),
                ("tasks", shape.tasks_per_connection.unwrap_or(0).to_string()),
                ("threads", shape.threads.to_string()),
                ("link", run.link.clone()),
                ("server", run.target.clone()),
            ]
        })
        .collect();
    let varies = |number: usize| settings.iter().any(|one| one[number] != settings[0][number]);
    let varying: Vec<usize> = (0..7).filter(|number| !settings.is_empty() && varies(*number)).collect();
    let describe = |one: &[(&str, String); 7]| {
        let parts: Vec<String> =
            varying.iter().map(|number| format!("{}={}", one[*number].0, one[*number].1)).collect();
        parts.join(" ")
    };
    settings.iter().map(describe).collect()
}
