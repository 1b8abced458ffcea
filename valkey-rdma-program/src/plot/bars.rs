//! One row for each measurement: bars of values, and ratios with their intervals.

use std::fmt::Write;

use super::{Axis, Drawing, Escaped};

const WIDTH: f64 = 480.0;
const ROW: f64 = 40.0;
/// Room for the value at the right.
const VALUE: f64 = 110.0;

/// One row.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// The value.
    pub value: f64,
    /// Between what the value lies, if that is known.
    pub between: Option<(f64, f64)>,
    /// The value as text.
    pub text: String,
    /// What else the reader may want to know: in the attribute `data-tip`, for a page's script.
    pub more: String,
}

/// Rows of values, or of ratios.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bars {
    /// What is shown.
    pub title: String,
    /// How to read it.
    pub note: String,
    /// The rows.
    pub rows: Vec<Row>,
    /// Whether values are ratios: dots on a logarithmic axis, each with its interval, and a line where both sides are equal. Otherwise
    /// values are bars that begin at zero.
    pub ratios: bool,
}

impl Bars {
    /// The rows as a drawing.
    #[must_use]
    pub fn draw(&self) -> Drawing {
        let height = self.rows.len() as f64 * ROW;
        let axis = self.axis();
        let x_of = |value: f64| axis.place(value) * (WIDTH - VALUE);
        let mut elements = String::new();
        if self.ratios {
            // Writing to a string does not fail.
            let _ = write!(elements, r#"<path class="equal" d="M{:.1} 0V{height:.1}"/>"#, x_of(1.0));
        }
        for (number, row) in self.rows.iter().enumerate() {
            let y = number as f64 * ROW;
            let _ = write!(
                elements,
                "<g data-tip=\"{tip}\" tabindex=\"0\">\
                 <rect class=\"room\" x=\"0\" y=\"{y:.1}\" width=\"{WIDTH}\" height=\"{ROW}\"/>\
                 <text class=\"name\" x=\"0\" y=\"{:.1}\">{}</text>",
                y + 13.0,
                Escaped(&row.name),
                tip = Escaped(format!("{}\n{}\n{}", row.name, row.text, row.more)),
            );
            if self.ratios {
                let y = y + 26.0;
                if let Some((low, high)) = row.between {
                    let (low, high) = (x_of(low), x_of(high));
                    let _ = write!(elements, r#"<path class="between" d="M{low:.1} {y:.1}H{high:.1}"/>"#);
                }
                let x = x_of(row.value);
                let _ = write!(elements, r#"<circle class="dot" cx="{x:.1}" cy="{y:.1}" r="5"/>"#);
            } else {
                let (y, width) = (y + 19.0, x_of(row.value));
                let _ = write!(
                    elements,
                    r#"<rect class="bar" x="0" y="{y:.1}" width="{width:.1}" height="14" rx="2"/>"#
                );
            }
            let _ = write!(
                elements,
                "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
                WIDTH - VALUE + 8.0,
                y + 31.0,
                Escaped(&row.text),
            );
        }
        Drawing {
            title: self.title.clone(),
            note: self.note.clone(),
            legend: Vec::new(),
            size: (WIDTH, height),
            elements,
        }
    }

    fn axis(&self) -> Axis {
        if !self.ratios {
            return Axis::linear(0.0, self.rows.iter().map(|row| row.value).fold(0.0, f64::max));
        }
        let ends = self.rows.iter().flat_map(|row| {
            let (low, high) = row.between.unwrap_or((row.value, row.value));
            [row.value, low, high]
        });
        let known = ends.filter(|end| end.is_finite() && *end > 0.0);
        let (low, high) = known.fold((0.5, 2.0), |(low, high), end: f64| (end.min(low), end.max(high)));
        Axis::logarithmic(low.max(0.01), high.min(100.0))
    }
}
