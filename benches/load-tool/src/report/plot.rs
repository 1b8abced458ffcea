//! Results as a picture: latency percentiles, rate over time, and comparisons as bars.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::compare::Comparison;
use crate::found::Found;
use crate::measure::{Latencies, Series};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Width of the picture.
const WIDTH: u32 = 1000;
/// Height of each panel.
const PANEL: u32 = 380;
/// The farthest percentile drawn, in nines.
const NINES: f64 = 4.0;

/// One curve.
struct Curve<'a> {
    name: String,
    latencies: &'a Latencies,
    /// Replies per second, step by step.
    rates: Vec<f64>,
    color: RGBColor,
}

/// Draws everything that was found as one SVG.
pub(crate) fn draw(found: &Found) -> Result<String, String> {
    let curves = curves(found);
    let bars = !found.comparisons.is_empty();
    let panels = 2 + u32::from(bars);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, PANEL * panels)).into_drawing_area();
        let drawn = (|| -> Drawn {
            root.fill(&WHITE)?;
            let areas = root.split_evenly((panels as usize, 1));
            percentiles(&areas[0], &curves)?;
            rates(&areas[1], &curves, bars)?;
            if bars {
                comparisons(&areas[2], found)?;
            }
            root.present()?;
            Ok(())
        })();
        drawn.map_err(|error| format!("the plot: {error}"))?;
    }
    Ok(svg)
}

/// Colours for all kinds of colour vision (Okabe and Ito).
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
    RGBColor(0, 0, 0),
];

fn curves(found: &Found) -> Vec<Curve<'_>> {
    let tests = found.tests.iter().flat_map(|(run, result)| {
        let shape =
            if found.tests.len() > 24 { format!(" c={}", run.shape.connections) } else { String::new() };
        let felt = (format!("{}{shape}", result.title), result.latencies(), whole(&result.tally.series));
        let service = result.tally.corrected.as_ref().map(|_| {
            (format!("{} service time", result.title), &result.tally.service, whole(&result.tally.series))
        });
        std::iter::once(felt).chain(service)
    });
    let compared = found.comparisons.iter().flat_map(|comparison| {
        comparison.sides.iter().zip(&found.compared).map(|(side, run)| {
            let rates = side.rounds.iter().map(|round| round.rate).collect();
            (format!("{} {}", comparison.title, run.transport), side.total.latencies(), rates)
        })
    });
    let swept = found.sweeps.iter().flat_map(|(_, sweep)| {
        sweep.steps.iter().map(|step| {
            let result = &step.result;
            (format!("{} {:.0}/s", sweep.title, step.rate), result.latencies(), whole(&result.tally.series))
        })
    });
    tests
        .chain(compared)
        .chain(swept)
        .zip(COLORS.iter().cycle())
        .map(|((name, latencies, rates), &color)| Curve { name, latencies, rates, color })
        .collect()
}

/// The rate in each whole step; the last one hardly ever is.
fn whole(series: &Series) -> Vec<f64> {
    let steps = series.rates().count();
    series.rates().take(steps.saturating_sub(1).max(1)).collect()
}

/// Latency against percentile, which is spread so that every nine has the same width.
fn percentiles(area: &Area<'_>, curves: &[Curve<'_>]) -> Drawn {
    let ms =
        |nines: f64, latencies: &Latencies| latencies.quantile(1.0 - 10f64.powf(-nines)).as_secs_f64() * 1e3;
    let most = curves.iter().map(|curve| ms(NINES, curve.latencies)).fold(0.002, f64::max);
    let least = curves.iter().map(|curve| ms(0.01, curve.latencies)).fold(most, f64::min).max(0.001);
    let mut chart = ChartBuilder::on(area)
        .caption("Latency by percentile", ("sans-serif", 20))
        .margin(12)
        .margin_right(40)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..NINES, (least * 0.8..most * 1.3).log_scale())?;
    chart
        .configure_mesh()
        .x_labels(NINES as usize + 1)
        .x_label_formatter(&|nines| match nines.round() as i32 {
            0 => "0 %".to_owned(),
            1 => "90 %".to_owned(),
            2 => "99 %".to_owned(),
            nines => format!("99.{} %", "9".repeat(nines as usize - 2)),
        })
        .y_label_formatter(&|ms| format!("{ms}"))
        .y_desc("ms")
        .light_line_style(WHITE)
        .draw()?;
    for curve in curves.iter().filter(|curve| curve.latencies.count() > 0) {
        let points = (0..=200).map(|step| {
            let nines = f64::from(step) / 200.0 * NINES;
            (nines, ms(nines, curve.latencies).max(least))
        });
        let color = curve.color;
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))?
            .label(&curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    legend(&mut chart, SeriesLabelPosition::UpperLeft)
}

/// Replies per second over time, or from round to round.
fn rates(area: &Area<'_>, curves: &[Curve<'_>], rounds: bool) -> Drawn {
    let (caption, unit, step) = match rounds {
        true => ("Requests per second in each round", "round", 1.0),
        false => ("Requests per second over time", "s", Series::STEP.as_secs_f64()),
    };
    let longest = curves.iter().map(|curve| curve.rates.len()).max().unwrap_or(0);
    let most = curves.iter().flat_map(|curve| curve.rates.iter().copied()).fold(1.0, f64::max);
    // The first round is 1, and stands in its middle; time begins at 0.
    let start = if rounds { 0.5 } else { 0.0 };
    let end = start + (longest as f64 * step).max(step);
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 20))
        .margin(12)
        .margin_right(40)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(start..end, 0.0..most * 1.1)?;
    chart
        .configure_mesh()
        .x_desc(unit)
        .x_label_formatter(&|x| match rounds {
            true if x.fract() != 0.0 => String::new(),
            true => format!("{x:.0}"),
            false => format!("{x:.1}"),
        })
        .y_label_formatter(&|rate| {
            if *rate >= 10_000.0 { format!("{:.0} k", rate / 1e3) } else { format!("{rate:.0}") }
        })
        .light_line_style(WHITE)
        .draw()?;
    for curve in curves {
        let points = curve.rates.iter().enumerate();
        let points = points.map(|(number, rate)| (start + (number as f64 + 0.5) * step, *rate));
        chart.draw_series(LineSeries::new(points, curve.color.stroke_width(2)))?;
    }
    Ok(())
}

/// A bar per comparison: how many times as many requests per second, with its interval.
fn comparisons(area: &Area<'_>, found: &Found) -> Drawn {
    let list: &[Comparison] = &found.comparisons;
    let ratio = |comparison: &Comparison| comparison.ratio(|round| round.rate);
    let most = list.iter().map(|comparison| ratio(comparison).high.min(1e3)).fold(1.2, f64::max);
    let names: Vec<&str> = found.compared.iter().map(|run| run.transport.as_str()).collect();
    let caption = match names[..] {
        [one, other] => format!("Requests per second: {one} to {other} (with 95 % interval)"),
        _ => "Requests per second, ratio (with 95 % interval)".to_owned(),
    };
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 20))
        .margin(12)
        .margin_right(40)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(-0.5..list.len() as f64 - 0.5, 0.0..most * 1.15)?;
    let label = |x: &f64| {
        let place = x.round();
        let near = (x - place).abs() < 0.01;
        if near {
            list.get(place as usize).map_or(String::new(), |c| c.title.chars().take(24).collect())
        } else {
            String::new()
        }
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_labels(list.len() * 2 + 1)
        .x_label_formatter(&label)
        .draw()?;
    for (number, comparison) in list.iter().enumerate() {
        let (x, ratio) = (number as f64, ratio(comparison));
        let color = COLORS[number % COLORS.len()];
        chart.draw_series([Rectangle::new(
            [(x - 0.3, 0.0), (x + 0.3, ratio.mean)],
            color.mix(0.6).filled(),
        )])?;
        let whisker = [(x, ratio.low.max(0.0)), (x, ratio.high.min(most * 1.15))];
        chart.draw_series([PathElement::new(whisker, BLACK.stroke_width(2))])?;
        let text = format!("{:.2}", ratio.mean);
        chart.draw_series([Text::new(text, (x + 0.04, ratio.mean + most * 0.06), ("sans-serif", 15))])?;
    }
    let one = [(-0.5, 1.0), (list.len() as f64 - 0.5, 1.0)];
    chart.draw_series([PathElement::new(one, BLACK.mix(0.5).stroke_width(1))])?;
    Ok(())
}

fn legend<'a, 'b, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>,
    position: SeriesLabelPosition,
) -> Drawn
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
    'b: 'a,
{
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 13))
        .draw()?;
    Ok(())
}
