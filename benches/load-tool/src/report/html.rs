//! A report for people: one HTML file, with pictures, that needs no network and no other file.

mod axis;
mod bars;
mod chart;
mod curves;
mod tables;
mod text;

use std::fmt::Write;

use crate::compare::Comparison;
use crate::found::Found;
use crate::result::{RunInfo, TestResult};
use crate::statistics::Ratio;
use crate::sweep::Sweep;

use bars::Row;
use curves::{Curve, charts};
use text::{Text, ms, short};

/// The whole page.
pub(crate) fn page(found: &Found) -> String {
    let mut body = String::new();
    // Writing to a string does not fail.
    let _ = write!(body, "{}", head(found));
    tests(&mut body, found);
    for comparison in &found.comparisons {
        compared(&mut body, found, comparison);
    }
    if !found.comparisons.is_empty() {
        all_ratios(&mut body, found);
    }
    for (_, sweep) in &found.sweeps {
        swept(&mut body, sweep);
    }
    let _ = write!(body, "<h2>What was verified</h2>\n{}", tables::verified(found));
    let _ = write!(body, "<h2>Settings</h2>\n{}", tables::settings(found));
    let _ = write!(body, "<h2>How to read this</h2>\n{READING}");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}<div id=\"tip\" role=\"status\"></div>\n\
         <script>\n{script}</script>\n</body>\n</html>\n",
        title = Text(title(found)),
        style = include_str!("html/style.css"),
        script = include_str!("html/script.js"),
    )
}

const READING: &str = "<p class=\"soft\">Rates count replies from the first request to the last reply. A latency begins when the \
    request is sent, or, with a schedule (--rps), when it was meant to be sent, and ends with the last byte of the reply. \
    A percentile says how long the fastest part of all requests took: p99 is what 99 of 100 did not exceed. \
    Ratios of a comparison are taken within rounds, in which both servers were measured; an interval that contains 1 shows no difference. \
    The emulated device is software: its times say nothing about RDMA.</p>\n";

fn runs(found: &Found) -> impl Iterator<Item = &RunInfo> {
    let tests = found.tests.iter().map(|(run, _)| run);
    tests.chain(&found.compared).chain(found.sweeps.iter().map(|(run, _)| run))
}

fn title(found: &Found) -> String {
    let mut targets: Vec<&str> = runs(found).map(|run| run.target.as_str()).collect();
    targets.dedup();
    match found.compared.as_slice() {
        [one, other] => format!("{} beside {}", one.target, other.target),
        _ => targets.first().map_or("Nothing was measured".to_owned(), |target| (*target).to_owned()),
    }
}

/// Every result that counts for whether all replies were right.
fn judged(found: &Found) -> Vec<&TestResult> {
    let tests = found.tests.iter().map(|(_, result)| result);
    let sides =
        found.comparisons.iter().flat_map(|comparison| comparison.sides.iter().map(|side| &side.total));
    let steps = found.sweeps.iter().flat_map(|(_, sweep)| sweep.steps.iter().map(|step| &step.result));
    tests.chain(sides).chain(steps).collect()
}

fn head(found: &Found) -> String {
    let results = judged(found);
    let replies: u64 = results.iter().map(|result| result.replies()).sum();
    let wrong: u64 = results.iter().map(|result| result.tally.faults.total()).sum();
    let verdict = match wrong {
        0 => format!("<span class=\"verdict right\">Every reply was right: {replies} checked</span>"),
        _ => format!("<span class=\"verdict wrong\">{wrong} wrong or missing; {replies} replies came</span>"),
    };
    let interrupted = match found.interrupted {
        true => {
            " <span class=\"verdict wrong\">Interrupted: the last result is not complete, and others may be missing</span>"
        }
        false => "",
    };
    let run = runs(found).next();
    let place = run.map_or(String::new(), |run| {
        let fact = |name| run.environment.get(name).unwrap_or_default();
        format!(
            "{}, over {}; measured by {} on {}, {}",
            fact("server"),
            run.transport,
            fact("tool"),
            fact("kernel"),
            fact("started")
        )
    });
    format!(
        "<h1>{}</h1>\n<p class=\"soft\">{}</p>\n<p>{verdict}{interrupted}</p>\n",
        Text(title(found)),
        Text(place)
    )
}

/// Tests of a run or of a matrix. In a matrix, those with the same title are shown together.
fn tests(body: &mut String, found: &Found) {
    if found.tests.is_empty() {
        return;
    }
    let _ = write!(body, "<h2>Results</h2>\n{}", tables::results(found));
    let shapes = curves::differences(found.tests.iter().map(|(run, _)| run));
    let is_matrix = shapes.iter().any(|shape| !shape.is_empty());
    if !is_matrix {
        let curves: Vec<Curve<'_>> =
            found.tests.iter().flat_map(|(_, result)| Curve::of_test(result, &result.title)).collect();
        let _ = writeln!(body, "<div class=\"charts\">{}</div>", charts(&curves));
        return;
    }
    let mut titles: Vec<&str> = Vec::new();
    for (_, result) in &found.tests {
        if !titles.contains(&result.title.as_str()) {
            titles.push(&result.title);
        }
    }
    for title in titles {
        let each = found.tests.iter().zip(&shapes).filter(|((_, result), _)| result.title == title);
        let rows: Vec<Row> = each.clone().map(|((_, result), shape)| rate_row(result, shape)).collect();
        let curves: Vec<Curve<'_>> =
            each.flat_map(|((_, result), shape)| Curve::of_test(result, shape)).collect();
        let bars = bars::bars("Requests per second", "One bar for each combination of the matrix.", &rows);
        let _ =
            write!(body, "<h2>{}</h2>\n<div class=\"charts\">{bars}{}</div>\n", Text(title), charts(&curves));
    }
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

fn side_names(found: &Found) -> [String; 2] {
    let names: Vec<&str> = found.compared.iter().map(|run| run.transport.as_str()).collect();
    match names.as_slice() {
        [one, other] if one != other => [(*one).to_owned(), (*other).to_owned()],
        _ => ["this".to_owned(), "other".to_owned()],
    }
}

fn compared(body: &mut String, found: &Found, comparison: &Comparison) {
    let names = side_names(found);
    let curves: Vec<Curve<'_>> =
        comparison.sides.iter().zip(&names).map(|(side, name)| Curve::of_side(side, name)).collect();
    let _ = write!(
        body,
        "<h2>{}, {} connections</h2>\n{}<div class=\"charts\">{}</div>\n",
        Text(&comparison.title),
        comparison.shape.connections,
        tables::sides(comparison, &names),
        charts(&curves)
    );
}

/// All ratios of all comparisons in two pictures.
fn all_ratios(body: &mut String, found: &Found) {
    let [one, other] = side_names(found);
    let row = |comparison: &Comparison, ratio: Ratio| {
        let known = ratio.low.is_finite() && ratio.high.is_finite();
        let between = known.then_some((ratio.low, ratio.high));
        let more = match between {
            Some((low, high)) => format!("between {low:.2} and {high:.2} with 95 % confidence"),
            None => "too few rounds for an interval".to_owned(),
        };
        Row {
            name: comparison.title.clone(),
            value: ratio.mean,
            between,
            text: format!("{:.2} x", ratio.mean),
            more,
        }
    };
    let rows = |of: fn(&crate::compare::Round) -> f64| -> Vec<Row> {
        found.comparisons.iter().map(|comparison| row(comparison, comparison.ratio(of))).collect()
    };
    let note = format!("{one} to {other}, with 95 % intervals. The dashed line: both are equal.");
    let _ = write!(
        body,
        "<h2>{} to {}</h2>\n<div class=\"charts\">{}{}</div>\n",
        Text(&one),
        Text(&other),
        bars::ratios("Requests per second, ratio", &note, &rows(|round| round.rate)),
        bars::ratios("p99 latency, ratio", &note, &rows(|round| round.p99)),
    );
}

fn swept(body: &mut String, sweep: &Sweep) {
    let mut steps: Vec<_> = sweep.steps.iter().collect();
    steps.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    let results: Vec<(f64, &TestResult)> = steps.iter().map(|step| (step.rate, &step.result)).collect();
    let best = match sweep.best() {
        Some(best) => format!(
            "Highest good rate: {}{} requests/s",
            if sweep.is_open_ended() { "at least " } else { "" },
            short(best.rate)
        ),
        None if sweep.interrupted => "Interrupted before a good rate was found".to_owned(),
        None => "No rate was good".to_owned(),
    };
    let limit = match sweep.limit {
        Some(limit) => format!("p99 within {} ms", ms(limit.as_secs_f64() * 1e3)),
        None => "no rate was tried".to_owned(),
    };
    let names: Vec<String> = steps
        .iter()
        .map(|step| format!("{}/s{}", short(step.rate), if step.good { "" } else { ", too slow" }))
        .collect();
    let curves: Vec<Curve<'_>> = steps
        .iter()
        .zip(&names)
        .filter_map(|(step, name)| Curve::of_test(&step.result, name).into_iter().next())
        .collect();
    let _ = write!(
        body,
        "<h2>{}: rising rates</h2>\n<p>{best} ({limit}); closed loop: {} requests/s.</p>\n\
         <div class=\"charts\">{}{}</div>\n",
        Text(&sweep.title),
        short(sweep.closed.rate()),
        curves::latency_by_rate(&results),
        charts(&curves)
    );
}
