//! Lines in a frame.

use std::fmt::Write;

use super::text::width;
use super::{Axis, Drawing, Escaped, line_class};

/// Size of the drawing, in its own units.
const SIZE: (f64, f64) = (480.0, 270.0);
/// Room around the frame: left, top, right, bottom.
const ROOM: (f64, f64, f64, f64) = (52.0, 10.0, 12.0, 36.0);
/// Size of the labels of both axes.
const LABEL: f64 = 12.0;
/// The least room between two labels of the horizontal axis.
const BETWEEN: f64 = 6.0;

/// One line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// Between what each point lies; none if that is not known.
    pub ranges: Vec<(f64, f64)>,
    /// Whether points are marked: lines of few points.
    pub dots: bool,
}

impl Line {
    /// A line without ranges and dots.
    #[must_use]
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Line {
        Line { name: name.into(), points: points.into_iter().collect(), ..Line::default() }
    }
}

/// Lines in a frame with two axes.
#[derive(Debug, Clone)]
pub struct Chart {
    /// What is shown.
    pub title: String,
    /// How to read it.
    pub note: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The labels of the horizontal axis. One that comes too close to the one before is left out.
    pub x_labels: Vec<(f64, String)>,
    /// The unit under the horizontal axis.
    pub x_unit: String,
    /// The vertical axis, labelled at its ticks.
    pub y: Axis,
    /// A value of the vertical axis as text.
    pub show: fn(f64) -> String,
    /// The lines.
    pub lines: Vec<Line>,
}

impl Chart {
    /// A chart without lines and title. Its axes are labelled with plain numbers.
    #[must_use]
    pub fn new(x: Axis, y: Axis) -> Chart {
        Chart {
            title: String::new(),
            note: String::new(),
            x_labels: x.ticks().into_iter().map(|tick| (tick, number(tick))).collect(),
            x,
            x_unit: String::new(),
            y,
            show: number,
            lines: Vec::new(),
        }
    }

    /// Where a point is in the drawing: from the left, from the top.
    #[must_use]
    pub fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let ((width, height), (left, top, right, bottom)) = (SIZE, ROOM);
        let x = left + self.x.place(x) * (width - left - right);
        let y = height - bottom - self.y.place(y) * (height - top - bottom);
        (tenth(x), tenth(y))
    }

    /// The chart as a drawing.
    #[must_use]
    pub fn draw(&self) -> Drawing {
        let mut elements = String::new();
        self.draw_axes(&mut elements);
        for (number, line) in self.lines.iter().enumerate() {
            let class = line_class(number);
            let points: Vec<_> = line.points.iter().map(|&(x, y)| self.place(x, y)).collect();
            let list: Vec<String> = points.iter().map(|(x, y)| format!("{x},{y}")).collect();
            // Writing to a string does not fail.
            let _ = write!(elements, r#"<polyline class="line {class}" points="{}"/>"#, list.join(" "));
            for (&(x, _), &(low, high)) in line.points.iter().zip(&line.ranges) {
                let ((x, low), (_, high)) = (self.place(x, low), self.place(x, high));
                let _ = write!(elements, r#"<path class="line range {class}" d="M{x} {low}V{high}"/>"#);
            }
            for (x, y) in points.iter().filter(|_| line.dots) {
                let _ = write!(elements, r#"<path class="line point {class}" d="M{x} {y}h0.1"/>"#);
            }
        }
        Drawing {
            title: self.title.clone(),
            note: self.note.clone(),
            legend: self.lines.iter().map(|line| line.name.clone()).collect(),
            size: SIZE,
            elements,
        }
    }

    fn draw_axes(&self, svg: &mut String) {
        let ((width, height), (left, top, right, bottom)) = (SIZE, ROOM);
        for tick in self.y.ticks() {
            let (_, y) = self.place(0.0, tick);
            let _ = write!(
                svg,
                r#"<path class="grid" d="M{left} {y:.1}H{:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                width - right,
                left - 6.0,
                y + 4.0,
                Escaped((self.show)(tick)),
            );
        }
        for (x, label, anchor) in self.labels() {
            let _ = write!(
                svg,
                r#"<path class="mark" d="M{x:.1} {:.1}v4"/><text class="tick" x="{x:.1}" y="{:.1}" text-anchor="{anchor}">{}</text>"#,
                height - bottom,
                height - bottom + 17.0,
                Escaped(label),
            );
        }
        let _ = write!(
            svg,
            r#"<path class="axis" d="M{left} {top}V{:.1}H{:.1}"/><text class="unit" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            height - bottom,
            width - right,
            left + (width - left - right) / 2.0,
            height - 4.0,
            Escaped(&self.x_unit),
        );
    }

    /// The labels of the horizontal axis that have room: where, which text, and which part of the text is there.
    fn labels(&self) -> Vec<(f64, &str, &'static str)> {
        let right = SIZE.0 - ROOM.2;
        let (mut labels, mut free) = (Vec::new(), 0.0);
        for (tick, label) in &self.x_labels {
            let (x, _) = self.place(*tick, 0.0);
            let long = width(label, LABEL);
            // The last label ends where the frame does.
            let (start, anchor) =
                if x > right - 16.0 { (x - long, "end") } else { (x - long / 2.0, "middle") };
            if start >= free {
                free = start + long + BETWEEN;
                labels.push((x, label.as_str(), anchor));
            }
        }
        labels
    }
}

/// A number without zeros at its end.
fn number(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

fn tenth(place: f64) -> f64 {
    (place * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(x: Axis, labels: &[(f64, &str)]) -> Vec<String> {
        let x_labels = labels.iter().map(|(place, text)| (*place, (*text).to_owned())).collect();
        let chart = Chart { x_labels, ..Chart::new(x, Axis::linear(0.0, 1.0)) };
        chart.labels().into_iter().map(|(_, label, _)| label.to_owned()).collect()
    }

    #[test]
    fn a_label_that_would_touch_the_one_before_is_left_out() {
        let far = [(0.0, "0"), (4.0, "99.99"), (5.0, "99.999")];
        assert_eq!(shown(Axis::linear(0.0, 5.0), &far), ["0", "99.99", "99.999"]);
        let near = [(0.0, "0"), (4.0, "99.99 percent"), (5.0, "99.999 percent")];
        assert_eq!(shown(Axis::linear(0.0, 5.0), &near), ["0", "99.99 percent"]);
    }

    #[test]
    fn a_point_has_its_range_and_its_dot() {
        let line = Line { ranges: vec![(1.0, 3.0)], dots: true, ..Line::new("SET", [(1.0, 2.0)]) };
        let chart = Chart { lines: vec![line], ..Chart::new(Axis::linear(0.0, 2.0), Axis::linear(0.0, 4.0)) };
        let elements = chart.draw().elements;
        let ((x, low), (_, high)) = (chart.place(1.0, 1.0), chart.place(1.0, 3.0));
        assert!(low > high && elements.contains(&format!("d=\"M{x} {low}V{high}\"")), "{elements}");
        assert_eq!(elements.matches("point").count(), 2, "the polyline's points, and a dot: {elements}");
    }
}
