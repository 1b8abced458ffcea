//! The demo's table, and what to make of it.

use std::io::{self, Write};

use super::{millis, style::Style, write_faults};
use crate::counters::Counters;
use crate::demo::{self, Comparison, Side};
use crate::result::Shape;

/// The counters that fit into the table, by their names in [`Counters::NAMES`].
const SHOWN: [&str; 6] =
    ["work requests", "doorbells", "wake-ups", "registers sent", "bytes out", "bytes in"];
/// Heads of their columns.
const HEADS: [&str; SHOWN.len()] =
    ["work req", "doorbells", "wake-ups", "registers", "bytes out", "bytes in"];

/// Writes the demo's table.
///
/// # Errors
/// Whatever `out` fails with.
pub fn write_demo(out: &mut dyn Write, comparisons: &[Comparison], style: Style) -> io::Result<()> {
    writeln!(
        out,
        "The mock server and the client in this process, values of {} bytes: the emulated device beside TCP loopback.\n",
        demo::VALUE_LEN
    )?;
    let groups = format!("{:64}{:23}   {}", "", "latency in ms", "per request");
    writeln!(out, "{}", style.faint(groups))?;
    let heads = format!(
        "{:33} {:9} {:>11} {:>7} {:>7} {:>7} {:>7} ",
        "workload", "transport", "requests/s", "ratio", "p50", "p99", "p99.9"
    );
    writeln!(out, "{}{}", style.bold(heads), style.bold(HEADS.map(|head| format!(" {head:>9}")).concat()))?;
    for comparison in comparisons {
        let workload = format!("{:10} {}", comparison.test.title(), arrangement(&comparison.shape));
        let ratio = format!("{:.2}", comparison.ratio());
        write_side(out, &workload, "emulated", &ratio, &comparison.emulated, style)?;
        write_side(out, "", "tcp", "", &comparison.tcp, style)?;
    }
    write!(
        out,
        "\nThe emulated device is software in this process, not RDMA: absolute times are noise, ratios are what to read.\n\
         Ratio: requests/s over the emulated device to requests/s over TCP, medians of rounds in which both took turns.\n\
         Next, a real server: valkey-rdma-benchmark --url rdma://HOST:6379\n"
    )
}

/// Writes what was wrong in the demo, or nothing.
///
/// # Errors
/// Whatever `out` fails with.
pub fn write_demo_faults(out: &mut dyn Write, comparisons: &[Comparison], style: Style) -> io::Result<()> {
    comparisons.iter().flat_map(Comparison::faults).try_for_each(|total| write_faults(out, total, style))
}

fn write_side(
    out: &mut dyn Write,
    workload: &str,
    transport: &str,
    ratio: &str,
    side: &Side,
    style: Style,
) -> io::Result<()> {
    let latencies = &side.total.latencies;
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|quantile| millis(latencies.quantile(quantile)));
    write!(out, "{workload:33} {transport:9} {:>11.0} ", side.rate())?;
    write!(out, "{} {p50:>7.3} {p99:>7.3} {p999:>7.3} ", style.bold(format_args!("{ratio:>7}")))?;
    match side.total.per_request() {
        Some(counters) => {
            for (name, value) in Counters::NAMES.iter().zip(counters) {
                if SHOWN.contains(name) {
                    write!(out, " {value:>9.3}")?;
                }
            }
        }
        None => write!(out, "{}", format!(" {:>9}", "-").repeat(SHOWN.len()))?,
    }
    writeln!(out)
}

/// Connections and tasks in words.
fn arrangement(shape: &Shape) -> String {
    let plural = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    match (shape.connections, shape.tasks_per_connection) {
        (1, tasks) => format!("1 conn., {}", plural(tasks, "task")),
        (connections, tasks) => format!("{connections} conn., {} each", plural(tasks, "task")),
    }
}
