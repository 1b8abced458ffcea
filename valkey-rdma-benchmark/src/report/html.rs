//! A report for people: one HTML file, with pictures, that needs no network and no other file.

mod evidence;
mod tables;

use std::fmt::Write;

use serde_json::json;
use valkey_rdma_program::plot::{self, Escaped as Text, line_class};

use super::numbers::short;
use super::pictures::{Figure, Of, sections};
use super::sweep::rule;
use crate::measure::{Found, RunInfo, Sweep, TestResult};

pub(crate) use evidence::evidence;

/// The whole page.
pub(crate) fn page(found: &Found) -> String {
    let mut body = String::new();
    // Writing to a string does not fail.
    let _ = write!(body, "{}", head(found));
    if !found.tests.is_empty() {
        let _ = write!(body, "<h2>Results</h2>\n{}", tables::results(found));
    }
    for section in sections(found) {
        if !section.heading.is_empty() {
            let _ = writeln!(body, "<h2>{}</h2>", Text(&section.heading));
        }
        match section.of {
            Of::Comparison(comparison, names) => body.push_str(&tables::sides(found, comparison, &names)),
            Of::Sweep(sweep) => body.push_str(&best(sweep)),
            Of::Tests | Of::Ratios => {}
        }
        let figures: String = section.figures.iter().map(figure).collect();
        let _ = writeln!(body, "<div class=\"charts\">{figures}</div>");
    }
    let _ = write!(body, "<h2>What was verified</h2>\n{}", tables::verified(found));
    let _ = write!(body, "<h2>Settings</h2>\n{}", tables::settings(found));
    let _ = write!(body, "<h2>How to read this</h2>\n{READING}");
    document(&title(found), &body)
}

/// A page that needs nothing else.
fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{plot}{style}</style>\n</head>\n<body>\n{body}<div id=\"tip\" role=\"status\"></div>\n\
         <script>\n{script}</script>\n</body>\n</html>\n",
        title = Text(title),
        plot = plot::STYLE,
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

/// The highest good rate of a sweep.
fn best(sweep: &Sweep) -> String {
    let best = match sweep.best() {
        Some(best) => format!(
            "Highest good rate: {}{} requests/s",
            if sweep.is_open_ended() { "at least " } else { "" },
            short(best.rate)
        ),
        None if sweep.interrupted => "Interrupted before a good rate was found".to_owned(),
        None => "No rate was good".to_owned(),
    };
    let rule = rule(sweep);
    format!("<p>{best} ({rule}); closed loop: {} requests/s.</p>\n", short(sweep.closed.rate()))
}

/// A picture with its title and its legend; a chart also has the values that the page's script shows under the pointer.
fn figure(figure: &Figure) -> String {
    let drawing = figure.draw();
    let legend: String = drawing
        .legend
        .iter()
        .enumerate()
        .map(|(number, name)| format!("<li class=\"{}\">{}</li>", line_class(number), Text(name)))
        .collect();
    let legend = if legend.is_empty() { legend } else { format!("<ul class=\"legend\">{legend}</ul>") };
    format!(
        "<figure class=\"chart\"><figcaption><b>{}</b> <span>{}</span></figcaption>{legend}{}{}</figure>\n",
        Text(&drawing.title),
        Text(&drawing.note),
        drawing.svg(),
        pointed(figure),
    )
}

/// What the pointer shows at each place of a chart, for the page's script.
fn pointed(figure: &Figure) -> String {
    let Figure::Chart { chart, label, suffix } = figure else { return String::new() };
    let longest = chart.lines.iter().map(|line| &line.points).max_by_key(|points| points.len());
    let places: &[(f64, f64)] = longest.map_or(&[], Vec::as_slice);
    let series = chart.lines.iter().enumerate().map(|(number, line)| {
        let ys: Vec<f64> = line.points.iter().map(|&(x, y)| chart.place(x, y).1).collect();
        let text: Vec<String> = line.points.iter().map(|&(_, y)| (chart.show)(y)).collect();
        json!({ "name": line.name, "class": line_class(number), "y": ys, "text": text })
    });
    let data = json!({
        "x": places.iter().map(|&(x, y)| chart.place(x, y).0).collect::<Vec<_>>(),
        "label": places.iter().map(|&(x, _)| label(x)).collect::<Vec<_>>(),
        "suffix": suffix,
        "series": series.collect::<Vec<_>>(),
    });
    // In a script element, only `</` could end the data.
    format!("<script type=\"application/json\">{}</script>", data.to_string().replace('<', "\\u003c"))
}
