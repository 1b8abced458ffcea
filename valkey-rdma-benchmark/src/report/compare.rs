//! Two servers in one table.

use std::io::{self, Write};

use valkey_rdma_program::plural;

use super::Style;
use crate::measure::{Comparison, Counter, Ratio, RunInfo, Shape};

/// Counters that the table has room for.
const SHOWN: [Counter; 4] =
    [Counter::WorkRequests, Counter::Doorbells, Counter::WakeUps, Counter::BytesCopied];

/// Writes who is compared.
pub(crate) fn write_compare_head(out: &mut dyn Write, runs: &[RunInfo], style: Style) -> io::Result<()> {
    for (name, run) in ["this ", "other"].iter().zip(runs) {
        write!(out, "{} {}  {}, {}", style.bold(name), run.target, run.transport, run.link)?;
        if runs.iter().any(|other| other.shape != run.shape) {
            write!(out, ", {}", arrangement(&run.shape))?;
        }
        writeln!(out)?;
    }
    if let Some(run) = runs.first() {
        super::table::write_environment(out, run, style)?;
    }
    writeln!(out)
}

/// Writes comparisons, a pair of rows each.
pub(crate) fn write_comparisons(
    out: &mut dyn Write,
    names: [&str; 2],
    comparisons: &[Comparison],
    style: Style,
) -> io::Result<()> {
    let width = label_width(comparisons);
    let name_width = names.map(str::len).into_iter().fold("transport".len(), usize::max);
    let heads = format!(
        "{:width$} {:name_width$} {:>11} {:>21} {:>9} {:>9} {:>9} {:>8}",
        "workload", "transport", "requests/s", "ratio (95 %)", "p50 ms", "p99 ms", "p99.9 ms", "CPU us"
    );
    let counters = SHOWN.map(|counter| format!(" {:>13}", counter.name())).concat();
    writeln!(out, "{}", style.bold(heads + &counters))?;
    for comparison in comparisons {
        let ratios = [Some(comparison.ratio(|round| round.rate)), None];
        for (number, ((side, name), ratio)) in comparison.sides.iter().zip(names).zip(ratios).enumerate() {
            let workload = if number == 0 { label(comparison) } else { String::new() };
            let latencies = side.total.latencies();
            let ms = |quantile| latencies.quantile(quantile).as_secs_f64() * 1e3;
            let ratio = ratio.map_or(String::new(), with_interval);
            write!(
                out,
                "{workload:width$} {name:name_width$} {:>11.0} {} {:>9.3} {:>9.3} {:>9.3} {:>8.2}",
                side.median(|round| round.rate),
                style.bold(format_args!("{ratio:>21}")),
                ms(0.5),
                ms(0.99),
                ms(0.999),
                side.median(|round| round.cpu),
            )?;
            match side.total.per_request() {
                Some(counters) => {
                    for shown in SHOWN {
                        write!(out, " {:>13.3}", counters.of(shown))?;
                    }
                }
                None => write!(out, "{}", format!(" {:>13}", "-").repeat(SHOWN.len()))?,
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

/// Writes how the other figures relate, and what to make of them.
pub(crate) fn write_ratios(
    out: &mut dyn Write,
    names: [&str; 2],
    comparisons: &[Comparison],
    style: Style,
) -> io::Result<()> {
    let width = label_width(comparisons);
    let head = format!("{} to {}, 95 % intervals", names[0], names[1]);
    writeln!(out, "\n{}", style.bold(head))?;
    let heads = ["rate", "p50", "p99", "client CPU"].map(|name| format!(" {name:>21}")).concat();
    writeln!(out, "{}", style.bold(format!("{:width$}{heads} {:>10}", "workload", "rounds")))?;
    for comparison in comparisons {
        let ratios = [
            comparison.ratio(|round| round.rate),
            comparison.ratio(|round| round.p50),
            comparison.ratio(|round| round.p99),
            comparison.ratio(|round| round.cpu),
        ]
        .map(|ratio| format!(" {:>21}", with_interval(ratio)))
        .concat();
        let rounds = format!("{} of {}", comparison.usable_rounds(), comparison.sides[0].rounds.len());
        writeln!(out, "{:width$}{ratios} {rounds:>10}", label(comparison))?;
    }
    writeln!(
        out,
        "Ratios are taken within rounds, in which both were measured; an interval that contains 1 shows no difference."
    )
}

/// A ratio with its interval, if there are two rounds at least.
fn with_interval(ratio: Ratio) -> String {
    if ratio.low.is_finite() && ratio.high.is_finite() {
        format!("{:.2} ({:.2} to {:.2})", ratio.mean, ratio.low, ratio.high)
    } else {
        "-".to_owned()
    }
}

/// The widest label, or the column's head.
fn label_width(comparisons: &[Comparison]) -> usize {
    comparisons.iter().map(|comparison| label(comparison).chars().count()).max().unwrap_or(0).max(8)
}

fn label(comparison: &Comparison) -> String {
    format!("{} {}", comparison.title, arrangement(&comparison.shape))
}

/// Connections, tasks and pipeline in words.
fn arrangement(shape: &Shape) -> String {
    let mut text = format!("{} conn.", shape.connections);
    if let Some(tasks) = shape.tasks_per_connection {
        text.push_str(&format!(", {} each", plural(tasks, "task")));
    }
    if shape.pipeline > 1 {
        text.push_str(&format!(", {} at a time", shape.pipeline));
    }
    if shape.runtime_threads > 1 {
        text.push_str(&format!(", a runtime of {} threads", shape.runtime_threads));
    }
    text
}
