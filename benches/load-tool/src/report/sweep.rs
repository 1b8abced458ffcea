//! A sweep as a table: what happens at each rate.

use std::io::{self, Write};

use super::Style;
use super::millis;
use crate::sweep::Sweep;

/// Writes all rates that were tried, in rising order, and the best one.
pub(crate) fn write_sweep(out: &mut dyn Write, sweep: &Sweep, style: Style) -> io::Result<()> {
    let heads = format!(
        "{:12} {:>12} {:>12} {:>10} {:>10} {:>12} {:>12} {:>8} {:>8}",
        sweep.title,
        "intended/s",
        "replies/s",
        "p50 ms",
        "p99 ms",
        "service p50",
        "service p99",
        "errors",
        ""
    );
    writeln!(out, "{}", style.bold(heads))?;
    let mut steps: Vec<_> = sweep.steps.iter().collect();
    steps.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    for step in steps {
        let (felt, service) = (step.result.latencies(), &step.result.tally.service);
        let ms = |latencies: &crate::measure::Latencies, quantile| millis(latencies.quantile(quantile));
        writeln!(
            out,
            "{:12} {:>12.0} {:>12.0} {:>10.3} {:>10.3} {:>12.3} {:>12.3} {:>8} {:>8}",
            "",
            step.rate,
            step.result.rate(),
            ms(felt, 0.5),
            ms(felt, 0.99),
            ms(service, 0.5),
            ms(service, 0.99),
            step.result.tally.faults.total(),
            if step.good { "good" } else { "too slow" },
        )?;
    }
    let why = match (sweep.limit.map(millis), sweep.targeted) {
        (Some(limit), true) => format!("p99 within {limit:.3} ms"),
        (Some(limit), false) => {
            format!("the knee: p99 within {limit:.3} ms, 5 times that of the lightest load")
        }
        (None, _) => "no rate was tried".to_owned(),
    };
    match sweep.best() {
        Some(best) => writeln!(
            out,
            "{}highest good rate: {}{:.0} requests/s ({why}); closed loop: {:.0} requests/s\n",
            if sweep.interrupted { "interrupted; " } else { "" },
            if sweep.is_open_ended() { "at least " } else { "" },
            best.rate,
            sweep.closed.rate()
        ),
        None if sweep.interrupted => writeln!(
            out,
            "interrupted before a good rate was found; closed loop: {:.0} requests/s\n",
            sweep.closed.rate()
        ),
        None => writeln!(
            out,
            "no rate was good ({why}); closed loop: {:.0} requests/s, p99 {:.3} ms\n",
            sweep.closed.rate(),
            millis(sweep.closed.latencies().quantile(0.99))
        ),
    }
}
