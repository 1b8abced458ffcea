//! What is drawn of results, for the page and for `--plot`: sections of charts and bars.

mod curves;

use valkey_rdma_program::plot::{Bars, Chart, Drawing, Row, picture};

use super::numbers::{ms, short};
use crate::measure::{Comparison, Found, Ratio, Round, RunInfo, Sweep, TestResult};
use curves::{Curve, figures, latency_by_rate};

/// One picture.
pub(super) enum Figure {
    /// Lines.
    Chart {
        /// The chart.
        chart: Chart,
        /// What the pointer shows of a place on the horizontal axis.
        label: Box<dyn Fn(f64) -> String>,
        /// What follows a value under the pointer.
        suffix: &'static str,
    },
    /// One row for each measurement.
    Bars(Bars),
}

impl Figure {
    /// The figure as a drawing.
    pub(super) fn draw(&self) -> Drawing {
        match self {
            Figure::Chart { chart, .. } => chart.draw(),
            Figure::Bars(bars) => bars.draw(),
        }
    }
}

/// What a section shows.
pub(super) enum Of<'a> {
    /// Tests, each run once.
    Tests,
    /// A test on two servers, which have these names.
    Comparison(&'a Comparison, [String; 2]),
    /// The ratios of all comparisons.
    Ratios,
    /// A test at rising rates.
    Sweep(&'a Sweep),
}

/// Figures that belong together.
pub(super) struct Section<'a> {
    /// What the figures show; empty for the tests of a run.
    pub(super) heading: String,
    /// The results behind them.
    pub(super) of: Of<'a>,
    /// The figures.
    pub(super) figures: Vec<Figure>,
}

/// All that is drawn of what was found.
pub(super) fn sections(found: &Found) -> Vec<Section<'_>> {
    let mut sections = tests(found);
    sections.extend(found.comparisons.iter().map(|comparison| compared(found, comparison)));
    if !found.comparisons.is_empty() {
        sections.push(ratios(found));
    }
    sections.extend(found.sweeps.iter().map(|(_, sweep)| swept(sweep)));
    sections
}

/// All figures as one SVG file, for `--plot`.
pub(crate) fn plot(found: &Found) -> String {
    let drawings = sections(found).into_iter().flat_map(|Section { heading, figures, .. }| {
        let titled = move |figure: Figure| {
            let drawing = figure.draw();
            let before = if heading.is_empty() { String::new() } else { format!("{heading}: ") };
            Drawing { title: format!("{before}{}", drawing.title), ..drawing }
        };
        figures.into_iter().map(titled)
    });
    picture(&drawings.collect::<Vec<_>>())
}

/// Tests of a run or of a matrix. In a matrix, those with the same title are shown together.
fn tests(found: &Found) -> Vec<Section<'_>> {
    if found.tests.is_empty() {
        return Vec::new();
    }
    let shapes = differences(found.tests.iter().map(|(run, _)| run));
    let is_matrix = shapes.iter().any(|shape| !shape.is_empty());
    if !is_matrix {
        let curves = found.tests.iter().flat_map(|(_, result)| Curve::of_test(result, &result.title));
        let figures = figures(&curves.collect::<Vec<_>>());
        return vec![Section { heading: String::new(), of: Of::Tests, figures }];
    }
    let mut titles: Vec<&str> = Vec::new();
    for (_, result) in &found.tests {
        if !titles.contains(&result.title.as_str()) {
            titles.push(&result.title);
        }
    }
    let section = |title: &str| {
        let each = found.tests.iter().zip(&shapes).filter(|((_, result), _)| result.title == title);
        let bars = Bars {
            title: "Requests per second".to_owned(),
            note: "One bar for each combination of the matrix.".to_owned(),
            rows: each.clone().map(|((_, result), shape)| rate_row(result, shape)).collect(),
            ratios: false,
        };
        let curves: Vec<Curve<'_>> =
            each.flat_map(|((_, result), shape)| Curve::of_test(result, shape)).collect();
        let figures = std::iter::once(Figure::Bars(bars)).chain(figures(&curves)).collect();
        Section { heading: title.to_owned(), of: Of::Tests, figures }
    };
    titles.into_iter().map(section).collect()
}

fn rate_row(result: &TestResult, name: &str) -> Row {
    let at = |quantile| ms(result.latencies().quantile(quantile).as_secs_f64() * 1e3);
    let wrong = result.tally.faults.total();
    Row {
        name: name.to_owned(),
        value: result.rate(),
        between: None,
        text: format!("{}/s", short(result.rate())),
        more: format!("p50 {} ms, p99 {} ms, {wrong} wrong", at(0.5), at(0.99)),
    }
}

/// What the two servers of a comparison are called: by their transports, if these differ.
fn side_names(found: &Found) -> [String; 2] {
    let names: Vec<&str> = found.compared.iter().map(|run| run.transport.as_str()).collect();
    match names.as_slice() {
        [one, other] if one != other => [(*one).to_owned(), (*other).to_owned()],
        _ => ["this".to_owned(), "other".to_owned()],
    }
}

fn compared<'a>(found: &Found, comparison: &'a Comparison) -> Section<'a> {
    let names = side_names(found);
    let curves: Vec<Curve<'_>> =
        comparison.sides.iter().zip(&names).map(|(side, name)| Curve::of_side(side, name)).collect();
    let heading = format!("{}, {} connections", comparison.title, comparison.shape.connections);
    Section { heading, figures: figures(&curves), of: Of::Comparison(comparison, names) }
}

/// All ratios of all comparisons.
fn ratios(found: &Found) -> Section<'_> {
    let [one, other] = side_names(found);
    let compared: Vec<_> =
        found.comparisons.iter().map(|comparison| (comparison.title.clone(), comparison)).collect();
    let figures = ratio_figures(&format!("{one} to {other}"), &compared);
    Section { heading: format!("{one} to {other}"), of: Of::Ratios, figures }
}

/// The ratios of comparisons with their names, a picture for each figure that both sides have. `sides` names these.
pub(super) fn ratio_figures(sides: &str, compared: &[(String, &Comparison)]) -> Vec<Figure> {
    let bars = |title: &str, of: fn(&Round) -> f64| {
        let rows = compared.iter().filter_map(|(name, comparison)| ratio_row(name, comparison.ratio(of)));
        Figure::Bars(Bars {
            title: title.to_owned(),
            note: format!("{sides}, with 95 % intervals. The dashed line: both are equal."),
            rows: rows.collect(),
            ratios: true,
        })
    };
    let mut figures = vec![
        bars("Requests per second, ratio", |round| round.rate),
        bars("p99 latency, ratio", |round| round.p99),
        bars("CPU of the client per request, ratio", |round| round.cpu),
    ];
    if compared.iter().all(|(_, comparison)| comparison.knows_server_cpu()) {
        figures.push(bars("CPU of the server per request, ratio", |round| round.server_cpu));
    }
    figures
}

/// A row of a picture of ratios, if there is one.
fn ratio_row(name: &str, ratio: Ratio) -> Option<Row> {
    let known = ratio.low.is_finite() && ratio.high.is_finite();
    let between = known.then_some((ratio.low, ratio.high));
    let more = match between {
        Some((low, high)) => format!("between {low:.2} and {high:.2} with 95 % confidence"),
        None => "too few rounds for an interval".to_owned(),
    };
    let (name, text) = (name.to_owned(), format!("{:.2} x", ratio.mean));
    ratio.mean.is_finite().then_some(Row { name, value: ratio.mean, between, text, more })
}

fn swept(sweep: &Sweep) -> Section<'_> {
    let mut steps: Vec<_> = sweep.steps.iter().collect();
    steps.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    let results: Vec<(f64, &TestResult)> = steps.iter().map(|step| (step.rate, &step.result)).collect();
    let curves = steps.iter().filter_map(|step| {
        let verdict = if step.is_good() { String::new() } else { format!(", {}", step.verdict.name()) };
        let name = format!("{}/s{verdict}", short(step.rate));
        Curve::of_test(&step.result, &name).into_iter().next()
    });
    let curves: Vec<Curve<'_>> = curves.collect();
    let figures = std::iter::once(latency_by_rate(&results)).chain(figures(&curves)).collect();
    Section { heading: format!("{}: rising rates", sweep.title), of: Of::Sweep(sweep), figures }
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
