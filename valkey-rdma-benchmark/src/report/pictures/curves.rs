//! What is drawn of latencies and rates.

use crate::measure::{Latencies, Series, Side, TestResult};

use valkey_rdma_program::millis;
use valkey_rdma_program::plot::{Axis, Chart, Line};

use super::Figure;
use crate::report::numbers::{ms, short};

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
pub(super) fn figures(curves: &[Curve<'_>]) -> Vec<Figure> {
    if curves.is_empty() {
        Vec::new()
    } else {
        vec![rates(curves), percentiles(curves), distribution(curves)]
    }
}

fn rates(curves: &[Curve<'_>]) -> Figure {
    let shown = || curves.iter().filter(|curve| !curve.rates.is_empty());
    let count = shown().map(|curve| curve.rates.len()).max().unwrap_or(0);
    let most = shown().flat_map(|curve| curve.rates.iter().copied()).fold(1.0, f64::max);
    let step = shown().next().and_then(|curve| curve.step);
    // The first round is 1; time begins at 0.
    let (first, each) = step.map_or((1.0, 1.0), |step| (0.0, step));
    let line = |curve: &Curve<'_>| {
        let points = curve.rates.iter().enumerate();
        Line::new(&curve.name, points.map(|(number, rate)| (first + number as f64 * each, *rate)))
    };
    let x = Axis::linear(first, first + count.saturating_sub(1).max(1) as f64 * each);
    let ticks = x.ticks().into_iter().filter(|tick| step.is_some() || tick.fract() == 0.0);
    let (note, unit) = match step {
        Some(_) => ("Over time, in steps of 0.1 s.", "seconds"),
        None => ("In each round; both servers in turns.", "round"),
    };
    let chart = Chart {
        title: "Requests per second".to_owned(),
        note: note.to_owned(),
        x_labels: ticks.map(|tick| (tick, format!("{}", (tick * 1000.0).round() / 1000.0))).collect(),
        x_unit: unit.to_owned(),
        show: short,
        lines: shown().map(line).collect(),
        ..Chart::new(x, Axis::linear(0.0, most * 1.05))
    };
    let label = move |x: f64| if step.is_some() { format!("{x:.1} s") } else { format!("round {x}") };
    Figure::Chart { chart, label: Box::new(label), suffix: "/s" }
}

/// The percentile of `nines`: 99 for 2.
fn percent(nines: f64) -> f64 {
    100.0 * (1.0 - 10f64.powf(-nines))
}

/// Latency against percentile, which is spread so that every nine has the same width.
fn percentiles(curves: &[Curve<'_>]) -> Figure {
    let filled = || curves.iter().filter(|curve| curve.latencies.count() > 0);
    // Beyond the last request of the largest measurement there is nothing to see.
    let most_requests = filled().map(|curve| curve.latencies.count()).max().unwrap_or(1);
    let end = (most_requests as f64).log10().clamp(1.0, NINES);
    let line = |curve: &Curve<'_>| {
        let nines = (0..=PLACES).map(|place| f64::from(place) / f64::from(PLACES) * end);
        let at = |nines: f64| millis(curve.latencies.quantile(percent(nines) / 100.0));
        Line::new(&curve.name, nines.map(|nines| (nines, at(nines))))
    };
    let lines: Vec<Line> = filled().map(line).collect();
    let labels = (0..=end as u32).map(|nines| {
        let text = match nines {
            0 => "0".to_owned(),
            1 => "90".to_owned(),
            2 => "99".to_owned(),
            more => format!("99.{}", "9".repeat(more as usize - 2)),
        };
        (f64::from(nines), text)
    });
    let label = |nines: f64| {
        let digits = (nines.floor() as usize).saturating_sub(1).max(1);
        format!("{:.digits$} % of requests took at most", percent(nines))
    };
    let chart = Chart {
        title: "Latency by percentile".to_owned(),
        note: "Milliseconds, on a logarithmic axis. Each nine has the same width.".to_owned(),
        x_labels: labels.collect(),
        x_unit: "% of requests".to_owned(),
        show: ms,
        ..Chart::new(Axis::linear(0.0, end), range(&lines))
    };
    Figure::Chart { chart: Chart { lines, ..chart }, label: Box::new(label), suffix: " ms" }
}

/// The share of requests in each of some columns, which have the same width on a logarithmic axis.
fn distribution(curves: &[Curve<'_>]) -> Figure {
    let filled = || curves.iter().filter(|curve| curve.latencies.count() > 0);
    let low = filled().map(|curve| millis(curve.latencies.min())).fold(f64::INFINITY, f64::min).max(1e-4);
    let high = filled().map(|curve| millis(curve.latencies.max())).fold(low * 2.0, f64::max) * 1.01;
    let axis = Axis::logarithmic(low, high);
    let width = (high / low).powf(1.0 / BINS as f64);
    let middle = |bin: usize| low * width.powf(bin as f64 + 0.5);
    let line = |curve: &Curve<'_>| {
        let mut shares = vec![0.0; BINS];
        for value in curve.latencies.histogram().iter_recorded() {
            let place = axis.place(value.value_iterated_to() as f64 / 1e6);
            let bin = ((place * BINS as f64) as usize).min(BINS - 1);
            shares[bin] += 100.0 * value.count_at_value() as f64 / curve.latencies.count() as f64;
        }
        Line::new(&curve.name, shares.into_iter().enumerate().map(|(bin, share)| (middle(bin), share)))
    };
    let lines: Vec<Line> = filled().map(line).collect();
    let most = lines.iter().flat_map(|line| &line.points).map(|point| point.1).fold(1.0, f64::max);
    let chart = Chart {
        title: "Distribution of latencies".to_owned(),
        note: "The share of requests in each of 60 columns of a logarithmic axis.".to_owned(),
        x_labels: axis.ticks().into_iter().map(|tick| (tick, ms(tick))).collect(),
        x_unit: "milliseconds".to_owned(),
        show: |share| format!("{}", (share * 100.0).round() / 100.0),
        lines,
        ..Chart::new(axis, Axis::linear(0.0, most * 1.05))
    };
    let label =
        move |middle: f64| format!("{} to {} ms", ms(middle / width.sqrt()), ms(middle * width.sqrt()));
    Figure::Chart { chart, label: Box::new(label), suffix: " %" }
}

/// How latencies rise with the rate.
pub(super) fn latency_by_rate(steps: &[(f64, &TestResult)]) -> Figure {
    let line = |(name, quantile): (&str, f64)| {
        let at = |result: &TestResult| millis(result.latencies().quantile(quantile));
        Line::new(name, steps.iter().map(|(rate, result)| (*rate, at(result))))
    };
    let lines = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)].map(line).to_vec();
    let x = Axis::linear(0.0, steps.iter().map(|(rate, _)| *rate).fold(1.0, f64::max));
    let chart = Chart {
        title: "Latency by rate".to_owned(),
        note: "From when a request was meant to be sent.".to_owned(),
        x_labels: x.ticks().into_iter().map(|tick| (tick, short(tick))).collect(),
        x_unit: "intended requests per second".to_owned(),
        show: ms,
        ..Chart::new(x, range(&lines))
    };
    let label = |rate: f64| format!("{} requests/s", short(rate));
    Figure::Chart { chart: Chart { lines, ..chart }, label: Box::new(label), suffix: " ms" }
}

/// An axis that has room for all values above zero.
fn range(lines: &[Line]) -> Axis {
    let values =
        || lines.iter().flat_map(|line| &line.points).map(|point| point.1).filter(|value| *value > 0.0);
    let high = values().fold(0.01, f64::max);
    Axis::logarithmic(values().fold(high, f64::min) * 0.9, high * 1.1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A label that would touch its neighbour is left out, so those that are there stand apart.
    #[test]
    fn each_nine_of_a_long_test_has_its_label() {
        let mut result = TestResult::empty("GET");
        for _ in 0..100_000 {
            result.tally.service.record(Duration::from_micros(20));
        }
        let drawn = figures(&Curve::of_test(&result, "GET"))[1].draw().elements;
        for label in ["0", "90", "99", "99.9", "99.99", "99.999"] {
            assert!(drawn.contains(&format!(">{label}</text>")), "{label} in {drawn}");
        }
    }
}
