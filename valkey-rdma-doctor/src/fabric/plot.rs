//! What a check has found, as a picture: latency and rate against the length of messages.

use valkey_rdma_program::plot::{Axis, Chart, Drawing, Line, picture};

use super::figures::{Direction, Found, Row};
use super::run::Operation;
use super::size::size_text;

/// Draws the exchanges that were sent from here, as SVG: one line for each operation and way to wait.
pub fn draw(found: &Found) -> String {
    let latency = |row: &Row| row.figures.latency.map(|latency| latency.p50 as f64 / 1e3);
    let rate = |row: &Row| row.figures.rate.map(|rate| rate.bytes / 1048576.0);
    picture(&[
        chart(found, "Median latency", "Microseconds, on logarithmic axes.", latency),
        chart(found, "Rate", "MiB/s, on logarithmic axes.", rate),
    ])
}

fn chart(found: &Found, title: &str, note: &str, value: impl Fn(&Row) -> Option<f64>) -> Drawing {
    let lines = lines(found, value);
    let points = || lines.iter().flat_map(|line| &line.points);
    let mut sizes: Vec<f64> = points().map(|(size, _)| *size).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let chart = Chart {
        title: title.to_owned(),
        note: note.to_owned(),
        x_labels: sizes.into_iter().map(|size| (size, size_text(size as u32))).collect(),
        x_unit: "size of messages".to_owned(),
        ..Chart::new(around(points().map(|(size, _)| *size)), around(points().map(|(_, value)| *value)))
    };
    Chart { lines, ..chart }.draw()
}

/// A logarithmic axis with some room beside these values.
fn around(values: impl Iterator<Item = f64> + Clone) -> Axis {
    let low = values.clone().reduce(f64::min).unwrap_or(1.0);
    let high = values.reduce(f64::max).unwrap_or(1.0);
    Axis::logarithmic(low * 0.8, high * 1.2)
}

fn lines(found: &Found, value: impl Fn(&Row) -> Option<f64>) -> Vec<Line> {
    let operations = Operation::ALL.into_iter().chain([Operation::Tcp]);
    let kinds = operations.flat_map(|operation| [(operation, false), (operation, true)]);
    let lines = kinds.map(|(operation, busy)| {
        let of_line = |row: &&Row| {
            row.direction == Direction::There && row.run.operation == operation && row.run.busy == busy
        };
        let rows = found.rows.iter().filter(of_line);
        let mut points: Vec<_> =
            rows.filter_map(|row| Some((f64::from(row.run.size), value(row)?))).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let name = if busy { format!("{operation} busy") } else { operation.to_string() };
        Line { dots: true, ..Line::new(name, points) }
    });
    lines.filter(|line| !line.points.is_empty()).collect()
}
