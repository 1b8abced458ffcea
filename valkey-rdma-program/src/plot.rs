//! Pictures of figures, as SVG: [`Chart`] draws lines in a frame, [`Bars`] one row for each measurement.
//!
//! Both become a [`Drawing`]. A page puts each into its text, with [`STYLE`] and colours of its own; [`picture`] makes one SVG file of
//! several, which needs nothing else.
//!
//! ```
//! use valkey_rdma_program::plot::{Axis, Chart, Line, picture};
//!
//! let line = Line::new("SET", [(1.0, 11_000.0), (2.0, 19_500.0), (4.0, 24_000.0)]);
//! let chart = Chart {
//!     title: "Requests per second".to_owned(),
//!     x_unit: "connections".to_owned(),
//!     lines: vec![Line { dots: true, ranges: vec![(10e3, 12e3), (19e3, 20e3), (23e3, 25e3)], ..line }],
//!     ..Chart::new(Axis::logarithmic(1.0, 4.0), Axis::linear(0.0, 25e3))
//! };
//! let svg = picture(&[chart.draw()]);
//! assert!(svg.starts_with("<svg"));
//! ```

mod axis;
mod bars;
mod chart;
mod text;

use std::fmt::Write;

pub use axis::Axis;
pub use bars::{Bars, Row};
pub use chart::{Chart, Line};
pub use text::Escaped;

/// What every drawing needs of a style sheet. The page says what its `--NAME` variables are: `text`, `soft` (less important text), `line`
/// (the grid), and `s0` to `s7` (the colours of lines).
pub const STYLE: &str = include_str!("plot/style.css");

/// The variables of [`STYLE`] in a picture: dark on white, with colours for all kinds of colour vision.
///
/// Source of the colours: Okabe and Ito, "Color Universal Design", darker where a line would be too pale.
const COLORS: [(&str, &str); 11] = [
    ("text", "#1a1f24"),
    ("soft", "#5b6570"),
    ("line", "#d9dee3"),
    ("s0", "#0072b2"),
    ("s1", "#c84e00"),
    ("s2", "#008a65"),
    ("s3", "#b0528a"),
    ("s4", "#a87400"),
    ("s5", "#3b94cc"),
    ("s6", "#6b6b6b"),
    ("s7", "#1a1f24"),
];

/// One drawing, and the texts around it.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawing {
    /// What is shown.
    pub title: String,
    /// How to read it.
    pub note: String,
    /// The names of lines, in the order of their [classes](line_class).
    pub legend: Vec<String>,
    /// Width and height, in units of the drawing.
    pub size: (f64, f64),
    /// The elements of the SVG.
    pub elements: String,
}

impl Drawing {
    /// The drawing as an element for a page: as wide as its place, without title and legend.
    #[must_use]
    pub fn svg(&self) -> String {
        let (width, height) = self.size;
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">{}</svg>",
            Escaped(&self.title),
            self.elements
        )
    }
}

/// The class of a line, which gives it its colour and dashes: eight colours, then the same with dashes, then with dots.
#[must_use]
pub fn line_class(number: usize) -> String {
    format!("s{} d{}", number % 8, (number / 8).min(2))
}

/// Room around and between the drawings of a picture.
const MARGIN: f64 = 16.0;
/// From one line of text to the next.
const LEADING: f64 = 18.0;
/// Pixels for each unit.
const SCALE: f64 = 2.0;

/// One SVG file of several drawings, each under the one before.
#[must_use]
pub fn picture(drawings: &[Drawing]) -> String {
    let mut style = STYLE.to_owned();
    for (name, color) in COLORS {
        style = style.replace(&format!("var(--{name})"), color);
    }
    let widest = drawings.iter().map(|drawing| drawing.size.0).fold(0.0, f64::max);
    let (mut body, mut y) = (String::new(), MARGIN);
    for drawing in drawings {
        // Writing to a string does not fail.
        let _ = write!(
            body,
            "<text x=\"{MARGIN}\" y=\"{:.1}\" class=\"title\">{}</text><text x=\"{MARGIN}\" y=\"{:.1}\" class=\"unit\">{}</text>",
            y + 14.0,
            Escaped(&drawing.title),
            y + 14.0 + LEADING,
            Escaped(&drawing.note),
        );
        y += 2.0 * LEADING + 4.0;
        y = legend(&mut body, &drawing.legend, y, widest);
        let _ = write!(body, "<g transform=\"translate({MARGIN} {y:.1})\">{}</g>", drawing.elements);
        y += drawing.size.1 + MARGIN;
    }
    let width = widest + 2.0 * MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {y:.1}\" width=\"{}\" height=\"{:.0}\">\
         <style>{style}</style><rect width=\"{width}\" height=\"{y:.1}\" fill=\"#ffffff\"/>{body}</svg>\n",
        width * SCALE,
        y * SCALE,
    )
}

/// Draws the names of lines from `y` on, as many in a row as there is room for. Returns where they end.
fn legend(body: &mut String, names: &[String], mut y: f64, room: f64) -> f64 {
    const MARK: f64 = 24.0;
    let mut x = 0.0;
    for (number, name) in names.iter().enumerate() {
        let width = MARK + text::width(name, 12.0) + MARGIN;
        if x > 0.0 && x + width > room {
            (x, y) = (0.0, y + LEADING);
        }
        let left = MARGIN + x;
        let _ = write!(
            body,
            "<path class=\"line {}\" d=\"M{left:.1} {:.1}h18\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            line_class(number),
            y + 6.0,
            left + MARK,
            y + 10.0,
            Escaped(name),
        );
        x += width;
    }
    if names.is_empty() { y } else { y + LEADING }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_needs_nothing_else_and_its_names_are_text() {
        let lines = (0..9).map(|number| Line::new(format!("<{number}>"), [(1.0, 2.0), (2.0, 3.0)])).collect();
        let chart = Chart { lines, ..Chart::new(Axis::linear(0.0, 2.0), Axis::linear(0.0, 3.0)) };
        let row = Row { name: "a & b".to_owned(), value: 2.0, ..Row::default() };
        let bars = Bars { rows: vec![row], ratios: true, ..Bars::default() };
        let svg = picture(&[chart.draw(), bars.draw()]);
        assert!(!svg.contains("var(") && svg.contains("&lt;8&gt;") && svg.contains("a &amp; b"), "{svg}");
        for element in ["svg", "g", "text", "style"] {
            let open =
                svg.matches(&format!("<{element}>")).count() + svg.matches(&format!("<{element} ")).count();
            assert_eq!(open, svg.matches(&format!("</{element}>")).count(), "{element}");
        }
        assert_eq!(
            svg.matches("class=\"line s0 d1\"").count(),
            2,
            "the ninth line has dashes, and its name too"
        );
    }
}
