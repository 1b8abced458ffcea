//! The results as a picture: every ratio of requests per second, ours against theirs, on one logarithmic axis.

use std::fs;
use std::path::Path;

use plotters::prelude::*;

use crate::matrix::{Bound, Row};
use crate::ratio::Ratio;
use crate::sample::{Figure, Samples};

/// Width of the picture.
const WIDTH: u32 = 1100;
/// Height of a line of it.
const LINE: u32 = 30;
/// Room for title and axis.
const FRAME: u32 = 110;
/// Room for names.
const NAMES: u32 = 480;
/// How far the axis goes at least, both ways from 1.
const LEAST: f64 = 2.0;

/// One comparison.
struct Line {
    name: String,
    median: f64,
    range: (f64, f64),
    wanted: Option<f64>,
}

/// Draws the ratios of all rows into an SVG file.
pub(crate) fn write(path: &Path, results: &[(&Row, Samples)]) -> Result<(), String> {
    let lines: Vec<Line> = results.iter().flat_map(|(row, samples)| lines(row, samples)).collect();
    let svg = draw(&lines).map_err(|error| format!("the plot: {error}"))?;
    fs::write(path, svg).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn lines(row: &Row, samples: &Samples) -> Vec<Line> {
    let line = |against: usize| {
        let ratio = Ratio::of(samples, against, Figure::Rate);
        let wanted = row.targets.iter().find_map(|target| match (target.figure, target.bound) {
            (Figure::Rate, Bound::AtLeast(bound)) if target.against == against => Some(bound),
            _ => None,
        });
        let name = format!("{} / {}", row.name, row.contenders[against]);
        Some(Line { name, median: ratio.median()?, range: ratio.range()?, wanted })
    };
    (1..row.contenders.len()).filter_map(line).collect()
}

fn draw(lines: &[Line]) -> Result<String, Box<dyn std::error::Error>> {
    const OURS: RGBColor = RGBColor(0, 114, 178);
    const WANTED: RGBColor = RGBColor(213, 94, 0);
    let farthest = lines
        .iter()
        .flat_map(|line| [line.range.0, line.range.1, line.wanted.unwrap_or(1.0)])
        .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
        .map(|ratio| ratio.max(1.0 / ratio))
        .fold(LEAST, f64::max)
        * 1.1;
    let mut svg = String::new();
    {
        let size = (WIDTH, FRAME + LINE * lines.len() as u32);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let bottom = lines.len() as f64 - 0.5;
        let mut chart = ChartBuilder::on(&root)
            .caption(
                "Requests per second: ours / theirs (line: lowest to highest round; tick: wanted)",
                ("sans-serif", 18),
            )
            .margin(12)
            .margin_right(40)
            .x_label_area_size(44)
            .y_label_area_size(NAMES)
            .build_cartesian_2d((1.0 / farthest..farthest).log_scale(), bottom..-0.5)?;
        let name = |y: &f64| {
            let place = y.round();
            let line = ((y - place).abs() < 0.01).then(|| lines.get(place as usize)).flatten();
            line.map_or(String::new(), |line| line.name.clone())
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(WHITE)
            .y_labels(lines.len() * 2 + 1)
            .y_label_formatter(&name)
            .x_label_formatter(&|x| format!("{x:.1}x"))
            .draw()?;
        for (place, line) in lines.iter().enumerate() {
            let y = place as f64;
            let bar = [(1.0, y - 0.3), (line.median, y + 0.3)];
            chart.draw_series([Rectangle::new(bar, OURS.mix(0.6).filled())])?;
            let whisker = [(line.range.0, y), (line.range.1, y)];
            chart.draw_series([PathElement::new(whisker, BLACK.stroke_width(2))])?;
            if let Some(wanted) = line.wanted {
                let tick = [(wanted, y - 0.42), (wanted, y + 0.42)];
                chart.draw_series([PathElement::new(tick, WANTED.stroke_width(3))])?;
            }
        }
        chart.draw_series([PathElement::new([(1.0, -0.5), (1.0, bottom)], BLACK.stroke_width(1))])?;
        root.present()?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_comparison_is_in_the_picture_with_its_name() {
        let lines = ["get / reference", "set / reference"].map(|name| Line {
            name: name.to_owned(),
            median: 2.0,
            range: (1.5, 8.0),
            wanted: Some(4.0),
        });
        let svg = draw(&lines).unwrap_or_else(|error| panic!("{error}"));
        for line in &lines {
            assert!(svg.contains(&line.name), "{svg}");
        }
    }
}
