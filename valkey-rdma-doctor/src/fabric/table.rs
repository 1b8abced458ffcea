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
    let _ = writeln!(out, "\n{}", style.bold(heading));
    let mut size = None;
    for line in &lines {
        if size.is_some_and(|size| size != line.run.size) {
            out.push('\n');
        }
        size = Some(line.run.size);
        write_line(&mut out, line);
    }
    out.push_str(
        "\nway: -> sent from here, <- from the peer. Latency: SEND, WRITE+imm and TCP half of a round trip; WRITE and READ until done.\n\
         CPU time and context switches: per message of the rate, at the sender and at its peer.\n",
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
    let _ = writeln!(
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
