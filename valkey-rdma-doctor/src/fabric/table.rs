//! What a check has found, for people.

use std::fmt::Write as _;

use super::figures::{Direction, Found, Row};
use super::run::{Operation, Run};
use super::size::size_text;
use crate::report::Style;

/// One line: the latency and the rate of the same exchange.
struct Line<'a> {
    direction: Direction,
    run: Run,
    latency: Option<&'a Row>,
    rate: Option<&'a Row>,
}

/// The lines, in the order in which they were measured.
fn lines(found: &Found) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for row in &found.rows {
        let key = |direction, run: Run| (direction, run.operation, run.size, run.busy);
        let same = |line: &Line<'_>| key(line.direction, line.run) == key(row.direction, row.run);
        let at = lines.iter().position(same).unwrap_or_else(|| {
            lines.push(Line { direction: row.direction, run: row.run, latency: None, rate: None });
            lines.len() - 1
        });
        let half = if row.run.stream { &mut lines[at].rate } else { &mut lines[at].latency };
        *half = Some(row);
    }
    lines
}

/// The table of a check.
pub fn table(found: &Found, style: Style) -> String {
    let mut out = String::new();
    if let Some((ours, theirs)) = &found.devices {
        let _ = writeln!(out, "here {ours}, there {theirs}");
        if ours.mtu != theirs.mtu && ours.mtu.is_some() && theirs.mtu.is_some() {
            let _ = writeln!(out, "the MTUs differ: set the same on both (`ip link set NETDEV mtu ...`)");
        }
        if ours.kind == "emulated" {
            let _ = writeln!(
                out,
                "The emulated device is software, not RDMA: its figures say nothing about RDMA."
            );
        } else if ours.software {
            out.push_str(
                "This device is software: slower than TCP. Much of its work is not in the CPU times here, and busy polling takes\n\
                 the CPU from what it waits for.\n",
            );
        }
    }
    match (found.compared, found.differences.len()) {
        (0, _) => {}
        (compared, 0) => {
            let _ = writeln!(
                out,
                "buffers match: {compared} compared, by SEND, WRITE and READ back, WRITE with immediate"
            );
        }
        (compared, different) => {
            let text = format!("BUFFERS DIFFER: {different} of {compared}");
            let _ = writeln!(out, "{}", style.red(text));
            for difference in &found.differences {
                let _ = writeln!(out, "  {difference}");
            }
        }
    }
    for note in &found.notes {
        let _ = writeln!(out, "note: {note}");
    }
    let lines = lines(found);
    if lines.is_empty() {
        return out;
    }
    let heading = format!(
        "{:>8}  {:<9}  {:<5}  {:<3}  {:>9} {:>9} {:>9} {:>9}  {:>10} {:>9}  {:>8} {:>8}  {:>8} {:>8}",
        "size",
        "operation",
        "wait",
        "way",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "max us",
        "msg/s",
        "MiB/s",
        "CPU us",
        "at peer",
        "switches",
        "at peer"
    );
    // Most checks do not count them.
    let counted = |row: &Row| row.figures.here.system_calls.or(row.figures.there.system_calls).is_some();
    let calls = found.rows.iter().any(counted);
    let more = if calls { format!("  {:>8} {:>8}", "calls", "at peer") } else { String::new() };
    let _ = writeln!(out, "\n{}", style.bold(format!("{heading}{more}")));
    let mut size = None;
    for line in &lines {
        if size.is_some_and(|size| size != line.run.size) {
            out.push('\n');
        }
        size = Some(line.run.size);
        write_line(&mut out, line);
        if calls {
            write_calls(&mut out, line);
        }
        out.push('\n');
    }
    let calls = if calls { ", system calls" } else { "" };
    let _ = writeln!(
        out,
        "\nway: -> sent from here, <- from the peer. Latency: SEND, WRITE+imm and TCP half of a round trip; WRITE and READ until done.\n\
         CPU time, context switches{calls}: per message of the rate, at the sender and at its peer."
    );
    out
}

fn write_line(out: &mut String, line: &Line<'_>) {
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
    let latency = match line.latency.and_then(|row| row.figures.latency) {
        Some(latency) => [latency.p50, latency.p99, latency.p999, latency.max].map(us),
        None => ["-"; 4].map(str::to_owned),
    };
    let rate = match line.rate.and_then(|row| row.figures.rate) {
        Some(rate) => [format!("{:.0}", rate.messages), format!("{:.1}", rate.bytes / 1048576.0)],
        None => ["-"; 2].map(str::to_owned),
    };
    let cost = match line.rate {
        Some(row) => {
            let per = |total: u64| total as f64 / (row.figures.messages.max(1)) as f64;
            let (here, there) = (row.figures.here, row.figures.there);
            let cpu = |ns| format!("{:.2}", per(ns) / 1e3);
            let switches = |count| format!("{:.3}", per(count));
            [cpu(here.cpu), cpu(there.cpu), switches(here.switches), switches(there.switches)]
        }
        None => ["-"; 4].map(str::to_owned),
    };
    let wait = match (line.run.operation, line.run.busy) {
        (Operation::Tcp, _) => "epoll",
        (_, true) => "busy",
        (_, false) => "event",
    };
    let way = if line.direction == Direction::There { "->" } else { "<-" };
    let _ = write!(
        out,
        "{:>8}  {:<9}  {wait:<5}  {way:<3}  {:>9} {:>9} {:>9} {:>9}  {:>10} {:>9}  {:>8} {:>8}  {:>8} {:>8}",
        size_text(line.run.size),
        line.run.operation,
        latency[0],
        latency[1],
        latency[2],
        latency[3],
        rate[0],
        rate[1],
        cost[0],
        cost[1],
        cost[2],
        cost[3],
    );
}

fn write_calls(out: &mut String, line: &Line<'_>) {
    let per_message = |calls: Option<u64>, messages: u64| match calls {
        Some(calls) => format!("{:.3}", calls as f64 / messages.max(1) as f64),
        None => "-".to_owned(),
    };
    let [here, there] = match line.rate.map(|row| &row.figures) {
        Some(figures) => {
            [figures.here, figures.there].map(|side| per_message(side.system_calls, figures.messages))
        }
        None => ["-"; 2].map(str::to_owned),
    };
    let _ = write!(out, "  {here:>8} {there:>8}");
}

#[cfg(test)]
mod tests {
    use super::super::figures::{Figures, Rate, Side};
    use super::*;

    fn found(here: Option<u64>, there: Option<u64>) -> Found {
        let run = Run { operation: Operation::Send, size: 64, busy: false, stream: true, millis: 1 };
        let side = |system_calls| Side { cpu: 1, switches: 1, system_calls };
        let figures = Figures {
            messages: 1000,
            latency: None,
            rate: Some(Rate { messages: 1e6, bytes: 64e6 }),
            here: side(here),
            there: side(there),
        };
        Found { rows: vec![Row { direction: Direction::There, run, figures }], ..Found::default() }
    }

    #[test]
    fn system_calls_have_their_columns_where_they_are_counted() {
        let text = table(&found(Some(2500), None), Style::Plain);
        assert!(text.contains("     calls  at peer\n"), "{text}");
        assert!(text.contains("     2.500        -\n"), "{text}");
        assert!(text.contains("context switches, system calls: per message"), "{text}");
        assert!(table(&found(None, Some(1)), Style::Plain).contains("         -    0.001\n"));
        let without = table(&found(None, None), Style::Plain);
        assert!(!without.contains("calls") && without.contains("context switches: per message"), "{without}");
    }
}
