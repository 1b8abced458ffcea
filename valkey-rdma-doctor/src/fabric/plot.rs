//! What a check has found, as a picture: latency and rate against the length of messages.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::figures::{Direction, Found, Row};
use super::run::Operation;
use super::size::size_text;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Width of the picture.
const WIDTH: u32 = 1000;
/// Height of each panel.
const PANEL: u32 = 420;

/// Colours for all kinds of colour vision (Okabe and Ito).
const COLORS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(0, 0, 0),
];

/// Draws the exchanges that were sent from here: one curve for each operation and way to wait.
///
/// # Errors
/// The text of whatever the drawing fails with.
pub fn draw(found: &Found) -> Result<String, String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, PANEL * 2)).into_drawing_area();
        let drawn = (|| -> Drawn {
            root.fill(&WHITE)?;
            let areas = root.split_evenly((2, 1));
            let latency = |row: &Row| row.figures.latency.map(|latency| latency.p50 as f64 / 1e3);
            panel(&areas[0], found, "Median latency", "us", &latency)?;
            let rate = |row: &Row| row.figures.rate.map(|rate| rate.bytes / 1048576.0);
            panel(&areas[1], found, "Rate", "MiB/s", &rate)?;
            root.present()?;
            Ok(())
        })();
        drawn.map_err(|error| format!("the plot: {error}"))?;
    }
    Ok(svg)
}

/// A curve: its name, its colour, its points.
struct Curve {
    name: String,
    color: RGBColor,
    busy: bool,
    points: Vec<(f64, f64)>,
}

fn curves(found: &Found, value: &dyn Fn(&Row) -> Option<f64>) -> Vec<Curve> {
    let operations = Operation::ALL.into_iter().chain([Operation::Tcp]).zip(COLORS);
    let kinds =
        operations.flat_map(|(operation, color)| [(operation, color, false), (operation, color, true)]);
    let curves = kinds.map(|(operation, color, busy)| {
        let of_curve = |row: &&Row| {
            row.direction == Direction::There && row.run.operation == operation && row.run.busy == busy
        };
        let rows = found.rows.iter().filter(of_curve);
        let points = rows.filter_map(|row| Some((f64::from(row.run.size), value(row)?))).collect();
        let name = if busy { format!("{operation} busy") } else { operation.to_string() };
        Curve { name, color, busy, points }
    });
    curves.filter(|curve| !curve.points.is_empty()).collect()
}

fn panel(
    area: &Area<'_>,
    found: &Found,
    caption: &str,
    unit: &str,
    value: &dyn Fn(&Row) -> Option<f64>,
) -> Drawn {
    let curves = curves(found, value);
    let values = || curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let sizes = || curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.0));
    let least = values().fold(f64::INFINITY, f64::min).max(1e-6);
    let most = values().fold(least, f64::max);
    if !least.is_finite() {
        return Ok(());
    }
    let (small, large) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(1.0, f64::max));
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 20))
        .margin(12)
        .margin_right(40)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d((small * 0.9..large * 1.2).log_scale(), (least * 0.8..most * 1.3).log_scale())?;
    chart
        .configure_mesh()
        .x_label_formatter(&|size| size_text(*size as u32))
        .y_label_formatter(&|value| format!("{value}"))
        .x_desc("size of messages")
        .y_desc(unit)
        .light_line_style(WHITE)
        .draw()?;
    for curve in &curves {
        let (color, width) = (curve.color, if curve.busy { 1 } else { 2 });
        let style = color.stroke_width(width);
        chart
            .draw_series(LineSeries::new(curve.points.iter().copied(), style))?
            .label(&curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        chart.draw_series(curve.points.iter().map(|point| Circle::new(*point, 3, color.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 14))
        .draw()?;
    Ok(())
}
