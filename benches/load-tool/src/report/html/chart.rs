//! Lines in a frame, as inline SVG. The page's script shows the values under the pointer.

use std::fmt::Write;

use serde_json::json;

use super::axis::Axis;
use super::text::Text;

/// Size of the drawing, in its own units; the page scales it.
const SIZE: (f64, f64) = (480.0, 270.0);
/// Room around the frame: left, top, right, bottom.
const ROOM: (f64, f64, f64, f64) = (52.0, 10.0, 12.0, 36.0);

/// One line.
pub(super) struct Line {
    /// Its name in the legend.
    pub(super) name: String,
    /// A value at each of the chart's places, from the first one.
    pub(super) values: Vec<f64>,
}

/// Lines over the same places.
pub(super) struct Chart {
    /// What is shown.
    pub(super) title: String,
    /// How to read it.
    pub(super) note: String,
    /// Where values are known on the horizontal axis, and the text that the pointer shows there.
    pub(super) places: Vec<(f64, String)>,
    /// The horizontal axis and its labels.
    pub(super) x: (Axis, Vec<(f64, String)>),
    /// The vertical axis.
    pub(super) y: Axis,
    /// The unit under the horizontal axis.
    pub(super) unit: &'static str,
    /// A value as text, for the vertical axis and for the pointer.
    pub(super) show: fn(f64) -> String,
    /// What follows a value under the pointer.
    pub(super) suffix: &'static str,
    /// The lines.
    pub(super) lines: Vec<Line>,
}

impl Chart {
    /// The chart as a figure.
    pub(super) fn figure(&self) -> String {
        let (width, height) = SIZE;
        let (left, top, right, bottom) = ROOM;
        let x_of = |value: f64| left + self.x.0.place(value) * (width - left - right);
        let y_of = |value: f64| height - bottom - self.y.place(value) * (height - top - bottom);
        let mut svg = String::new();
        for tick in self.y.ticks() {
            let y = y_of(tick);
            let _ = write!(
                svg,
                r#"<path class="grid" d="M{left} {y:.1}H{:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                width - right,
                left - 6.0,
                y + 4.0,
                Text((self.show)(tick)),
            );
        }
        for (tick, label) in &self.x.1 {
            let x = x_of(*tick);
            let anchor = if x > width - right - 16.0 { "end" } else { "middle" };
            let _ = write!(
                svg,
                r#"<path class="mark" d="M{x:.1} {:.1}v4"/><text class="tick" x="{x:.1}" y="{:.1}" text-anchor="{anchor}">{}</text>"#,
                height - bottom,
                height - bottom + 17.0,
                Text(label),
            );
        }
        let _ = write!(
            svg,
            r#"<path class="axis" d="M{left} {top}V{:.1}H{:.1}"/><text class="unit" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            height - bottom,
            width - right,
            left + (width - left - right) / 2.0,
            height - 4.0,
            Text(self.unit),
        );
        let xs: Vec<f64> = self.places.iter().map(|(value, _)| tenth(x_of(*value))).collect();
        let mut series = Vec::new();
        for (number, line) in self.lines.iter().enumerate() {
            let ys: Vec<f64> = line.values.iter().map(|value| tenth(y_of(*value))).collect();
            let points: Vec<String> = xs.iter().zip(&ys).map(|(x, y)| format!("{x},{y}")).collect();
            let _ = write!(
                svg,
                r#"<polyline class="line {}" points="{}"/>"#,
                line_class(number),
                points.join(" ")
            );
            let shown: Vec<String> = line.values.iter().map(|value| (self.show)(*value)).collect();
            series.push(json!({ "name": line.name, "class": line_class(number), "y": ys, "text": shown }));
        }
        let labels: Vec<&str> = self.places.iter().map(|(_, label)| label.as_str()).collect();
        let data = json!({ "x": xs, "label": labels, "suffix": self.suffix, "series": series });
        // In a script element, only `</` could end the data.
        let data = data.to_string().replace('<', "\\u003c");
        format!(
            "<figure class=\"chart\"><figcaption><b>{title}</b> <span>{note}</span></figcaption>{legend}\
             <svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\">{svg}\
             <path class=\"here\" d=\"M0 {top}V{bottom:.1}\"/></svg>\
             <script type=\"application/json\">{data}</script></figure>\n",
            title = Text(&self.title),
            note = Text(&self.note),
            legend = self.legend(),
            bottom = height - bottom,
        )
    }

    fn legend(&self) -> String {
        let item = |(number, line): (usize, &Line)| {
            format!("<li class=\"{}\">{}</li>", line_class(number), Text(&line.name))
        };
        format!("<ul class=\"legend\">{}</ul>", self.lines.iter().enumerate().map(item).collect::<String>())
    }
}

/// Colour and dashes of a line: eight colours, then the same with dashes.
fn line_class(number: usize) -> String {
    format!("s{} d{}", number % 8, (number / 8).min(2))
}

fn tenth(place: f64) -> f64 {
    (place * 10.0).round() / 10.0
}
