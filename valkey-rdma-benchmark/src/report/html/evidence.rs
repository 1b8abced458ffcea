//! The page of `--evidence`: ratios of all cells in pictures, their figures in a table, and what a reader needs to trust them.

use serde_json::Value;
use valkey_rdma_program::plot::Escaped as Text;

use super::{READING, document, figure, tables};
use crate::measure::Evidence;
use crate::report::pictures::{Figure, ratio_figures};

/// The whole page.
pub(crate) fn evidence(evidence: &Evidence) -> String {
    let title = "RDMA beside TCP of one server";
    let mut body = format!("<h1>{title}</h1>\n{}", head(evidence));
    if evidence.comparisons().next().is_some() {
        let figures: String = ratios(evidence).iter().map(figure).collect();
        body.push_str(&format!("<h2>RDMA to TCP</h2>\n<div class=\"charts\">{figures}</div>\n"));
        body.push_str(&format!("<h2>Figures</h2>\n{}", tables::cells(evidence)));
    }
    let failed: Vec<[String; 2]> = evidence
        .cells
        .iter()
        .flat_map(|cell| cell.failed.iter().map(|(title, reason)| [cell.label(title), reason.clone()]))
        .collect();
    if !failed.is_empty() {
        body.push_str(&format!(
            "<h2>Not measured, or with wrong replies</h2>\n{}",
            tables::pairs(["cell", "reason"], &failed)
        ));
    }
    let published: Vec<[String; 2]> = evidence
        .cells
        .iter()
        .filter_map(|cell| Some((cell.name, cell.published?)))
        .map(|(name, published)| [name.to_owned(), format!("{} ({})", published.figures, published.source)])
        .collect();
    if !published.is_empty() {
        body.push_str(&format!(
            "<h2>What others have published, on their own machines</h2>\n{}",
            tables::pairs(["cell", "figures"], &published)
        ));
    }
    body.push_str(&format!("<h2>Where and how</h2>\n{}", facts(evidence)));
    body.push_str(&format!("<h2>How to read this</h2>\n{CELLS}{READING}"));
    document(title, &body)
}

const CELLS: &str = "<p class=\"soft\">A cell is named by its connections, the tasks that share each of them (none: driven directly, as by \
    valkey-benchmark) and the bytes of a value. Those of 64K, 1M and 32M have one task of the client library on each connection. Ring: values in the stream. Direct: the server's adapter reads and writes the client's \
    memory. At N/s: both sides get N requests per second, so that their cores can be compared. CPU is the processor time of this tool's load \
    threads; that of the server is of all of its threads, by INFO cpu.</p>\n";

fn head(evidence: &Evidence) -> String {
    let client = &evidence.about.client;
    let fact = |name| client.get(name).unwrap_or_default();
    let wrong: u64 = evidence.results().map(|result| result.tally.faults.total()).sum();
    let replies: u64 = evidence.results().map(|result| result.replies()).sum();
    let verdict = match wrong {
        0 => format!("<span class=\"verdict right\">Every reply was right: {replies} checked</span>"),
        _ => format!("<span class=\"verdict wrong\">{wrong} wrong or missing; {replies} replies came</span>"),
    };
    let interrupted = match evidence.interrupted {
        true => format!(
            " <span class=\"verdict wrong\">Interrupted: {} of {} cells were begun</span>",
            evidence.cells.len(),
            evidence.chosen
        ),
        false => String::new(),
    };
    let place = format!(
        "{}; measured by {} on {}, {}",
        fact("server"),
        fact("tool"),
        fact("kernel"),
        fact("started")
    );
    format!("<p class=\"soft\">{}</p>\n<p>{verdict}{interrupted}</p>\n", Text(place))
}

fn ratios(evidence: &Evidence) -> Vec<Figure> {
    let compared: Vec<_> = evidence
        .comparisons()
        .map(|(cell, compared)| (format!("{} to {}", cell.label(&compared.title), cell.names()[1]), compared))
        .collect();
    ratio_figures("RDMA to TCP", &compared)
}

/// How it was measured, the server, this machine, and the doctor's findings.
fn facts(evidence: &Evidence) -> String {
    let about = &evidence.about;
    let mut rows = vec![
        ("command".to_owned(), about.command.clone()),
        ("rounds".to_owned(), format!("{} of {} s on each side", about.rounds, about.turn.as_secs_f64())),
    ];
    rows.extend(about.client.facts.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    rows.extend(about.server.iter().map(|(name, value)| (format!("server: {name}"), value.clone())));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let each = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for section in each(&about.machine["sections"]) {
        let of = format!("{} {}", text(&section["name"]), text(&section["subject"]));
        for finding in each(&section["findings"]) {
            let value = format!("{}: {}", text(&finding["verdict"]), text(&finding["value"]));
            rows.push((format!("{}: {}", of.trim(), text(&finding["id"])), value));
        }
    }
    tables::facts(
        rows.iter().map(|(name, value)| (name.as_str(), value.clone())).collect::<Vec<_>>().as_slice(),
    )
}
