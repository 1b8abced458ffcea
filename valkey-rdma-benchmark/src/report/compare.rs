//! Two servers in one table.

use std::io::{self, Write};

use valkey_rdma_program::plural;

use super::Style;
use crate::measure::{Comparison, Counter, Ratio, Round, RunInfo, Shape};

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

/// Picks a figure of a round.
type Figure = fn(&Round) -> f64;

/// The table of comparisons: a pair of rows for each.
pub(crate) struct ComparisonTable {
    label_width: usize,
    name_width: usize,
    /// Whether it has a column for the server's CPU time.
    has_server_cpu: bool,
    style: Style,
}

impl ComparisonTable {
    /// A table with room for labels of `label_width` characters.
    pub(crate) fn new(label_width: usize, names: [&str; 2], has_server_cpu: bool, style: Style) -> Self {
        let name_width = names.map(str::len).into_iter().fold("transport".len(), usize::max);
        Self { label_width, name_width, has_server_cpu, style }
    }

    /// Writes the names of the columns.
    pub(crate) fn write_head(&self, out: &mut dyn Write) -> io::Result<()> {
        let (width, name_width) = (self.label_width, self.name_width);
        let heads = format!(
            "{:width$} {:name_width$} {:>11} {:>21} {:>9} {:>9} {:>9} {:>8}",
            "workload", "transport", "requests/s", "ratio (95 %)", "p50 ms", "p99 ms", "p99.9 ms", "CPU us"
        );
        let server = if self.has_server_cpu { format!(" {:>9}", "server us") } else { String::new() };
        let counters = SHOWN.map(|counter| format!(" {:>13}", counter.name())).concat();
        writeln!(out, "{}", self.style.bold(heads + &server + &counters))
    }

    /// Writes both sides of a comparison.
    pub(crate) fn write_rows(
        &self,
        out: &mut dyn Write,
        label: &str,
        names: [&str; 2],
        comparison: &Comparison,
    ) -> io::Result<()> {
        let (width, name_width) = (self.label_width, self.name_width);
        let ratios = [Some(comparison.ratio(|round| round.rate)), None];
        for (number, ((side, name), ratio)) in comparison.sides.iter().zip(names).zip(ratios).enumerate() {
            let workload = if number == 0 { label } else { "" };
            let latencies = side.total.latencies();
            let ms = |quantile| latencies.quantile(quantile).as_secs_f64() * 1e3;
            let ratio = ratio.map_or(String::new(), with_interval);
            write!(
                out,
                "{workload:width$} {name:name_width$} {:>11.0} {} {:>9.3} {:>9.3} {:>9.3} {:>8.2}",
                side.median(|round| round.rate),
                self.style.bold(format_args!("{ratio:>21}")),
                ms(0.5),
                ms(0.99),
                ms(0.999),
                side.median(|round| round.cpu),
            )?;
            match (self.has_server_cpu, side.knows_server_cpu()) {
                (true, true) => write!(out, " {:>9.2}", side.median(|round| round.server_cpu))?,
                (true, false) => write!(out, " {:>9}", "-")?,
                (false, _) => {}
            }
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
        Ok(())
    }
}

/// Writes the comparisons of two servers.
pub(crate) fn write_comparisons(
    out: &mut dyn Write,
    names: [&str; 2],
    comparisons: &[Comparison],
    style: Style,
) -> io::Result<()> {
    let has_server_cpu = comparisons.iter().any(Comparison::knows_server_cpu);
    let table = ComparisonTable::new(label_width(&labelled(comparisons)), names, has_server_cpu, style);
    table.write_head(out)?;
    for (label, comparison) in labelled(comparisons) {
        table.write_rows(out, &label, names, comparison)?;
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
    write_labelled_ratios(out, names, &labelled(comparisons), style)
}

/// The same for comparisons with labels of their own.
pub(crate) fn write_labelled_ratios(
    out: &mut dyn Write,
    names: [&str; 2],
    comparisons: &[(String, &Comparison)],
    style: Style,
) -> io::Result<()> {
    let width = label_width(comparisons);
    let head = format!("{} to {}, 95 % intervals", names[0], names[1]);
    writeln!(out, "\n{}", style.bold(head))?;
    let of: [(&str, Figure); 5] = [
        ("rate", |round| round.rate),
        ("p50", |round| round.p50),
        ("p99", |round| round.p99),
        ("client CPU", |round| round.cpu),
        ("server CPU", |round| round.server_cpu),
    ];
    let has_server_cpu = comparisons.iter().any(|(_, comparison)| comparison.knows_server_cpu());
    let of = if has_server_cpu { &of[..] } else { &of[..4] };
    let heads: String = of.iter().map(|(name, _)| format!(" {name:>21}")).collect();
    writeln!(out, "{}", style.bold(format!("{:width$}{heads} {:>10}", "workload", "rounds")))?;
    for (label, comparison) in comparisons {
        let ratios = of.iter().map(|(_, of)| format!(" {:>21}", with_interval(comparison.ratio(of))));
        let rounds = format!("{} of {}", comparison.usable_rounds(), comparison.sides[0].rounds.len());
        writeln!(out, "{label:width$}{} {rounds:>10}", ratios.collect::<String>())?;
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
fn label_width(comparisons: &[(String, &Comparison)]) -> usize {
    comparisons.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0).max(8)
}

/// Each with its test and how its requests are arranged.
fn labelled(comparisons: &[Comparison]) -> Vec<(String, &Comparison)> {
    let label = |comparison: &Comparison| format!("{} {}", comparison.title, arrangement(&comparison.shape));
    comparisons.iter().map(|comparison| (label(comparison), comparison)).collect()
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
