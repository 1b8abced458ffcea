//! One row for each measurement: bars of rates, and ratios with their intervals.

use std::fmt::Write;

use super::axis::Axis;
use super::text::Text;

const WIDTH: f64 = 480.0;
const ROW: f64 = 40.0;
/// Room for the value at the right.
const VALUE: f64 = 110.0;

/// One row.
pub(super) struct Row {
    /// What was measured.
    pub(super) name: String,
    /// The value, and between what it lies if that is known.
    pub(super) value: f64,
    /// The interval.
    pub(super) between: Option<(f64, f64)>,
    /// The value as text.
    pub(super) text: String,
    /// What else the reader may want to know.
    pub(super) more: String,
}

/// Rows of bars that begin at zero.
pub(super) fn bars(title: &str, note: &str, rows: &[Row]) -> String {
    let most = rows.iter().map(|row| row.value).fold(0.0, f64::max);
    let axis = Axis::linear(0.0, most);
    let draw = |row: &Row, y: f64| {
        let width = axis.place(row.value) * (WIDTH - VALUE);
        format!(r#"<rect class="bar" x="0" y="{y:.1}" width="{width:.1}" height="14" rx="2"/>"#)
    };
    figure(title, note, rows, "", draw)
}

/// Rows of ratios: a dot, its interval, and a line where both are equal.
pub(super) fn ratios(title: &str, note: &str, rows: &[Row]) -> String {
    let ends = rows.iter().flat_map(|row| {
        let (low, high) = row.between.unwrap_or((row.value, row.value));
        [row.value, low, high]
    });
    let known = ends.filter(|end| end.is_finite() && *end > 0.0);
    let (low, high) = known.fold((0.5, 2.0), |(low, high), end: f64| (end.min(low), end.max(high)));
    let axis = Axis::logarithmic(low.max(0.01), high.min(100.0));
    let x_of = |value: f64| axis.place(value) * (WIDTH - VALUE);
    let one = format!(r#"<path class="equal" d="M{x:.1} 0V{:.1}"/>"#, rows.len() as f64 * ROW, x = x_of(1.0));
    let draw = |row: &Row, y: f64| {
        let y = y + 7.0;
        let mut svg = String::new();
        if let Some((low, high)) = row.between {
            let _ = write!(svg, r#"<path class="between" d="M{:.1} {y:.1}H{:.1}"/>"#, x_of(low), x_of(high));
        }
        let _ = write!(svg, r#"<circle class="dot" cx="{:.1}" cy="{y:.1}" r="5"/>"#, x_of(row.value));
        svg
    };
    figure(title, note, rows, &one, draw)
}

fn figure(title: &str, note: &str, rows: &[Row], below: &str, draw: impl Fn(&Row, f64) -> String) -> String {
    let height = rows.len() as f64 * ROW;
    let mut svg = below.to_owned();
    for (number, row) in rows.iter().enumerate() {
        let y = number as f64 * ROW;
        let _ = write!(
            svg,
            "<g data-tip=\"{tip}\" tabindex=\"0\">\
             <rect class=\"room\" x=\"0\" y=\"{y:.1}\" width=\"{WIDTH}\" height=\"{ROW}\"/>\
             <text class=\"name\" x=\"0\" y=\"{:.1}\">{}</text>{}\
             <text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
            y + 13.0,
            Text(&row.name),
            draw(row, y + 19.0),
            WIDTH - VALUE + 8.0,
            y + 31.0,
            Text(&row.text),
            tip = Text(format!("{}\n{}\n{}", row.name, row.text, row.more)),
        );
    }
    format!(
        "<figure class=\"chart\"><figcaption><b>{title}</b> <span>{note}</span></figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">{svg}</svg></figure>\n",
        title = Text(title),
        note = Text(note),
    )
}
