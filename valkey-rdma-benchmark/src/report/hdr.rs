//! Latency distributions in the formats of HdrHistogram's tools, in nanoseconds.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use hdrhistogram::Histogram;

use super::write_file;
use crate::measure::{Found, TestResult};

/// Lines of a percentile distribution per halving of the distance to 100 %.
const TICKS: u32 = 5;

/// The files of tests with these titles, in order: of each `FILE.TEST.hgrm`, and of the service times `FILE.TEST.service.hgrm`. Equal
/// names are numbered.
pub(crate) fn paths(path: &Path, titles: &[&str]) -> Vec<(PathBuf, PathBuf)> {
    let names: Vec<_> = titles.iter().map(|title| names(title)).collect();
    let file = |(number, name): (usize, &String)| {
        let again = names[..number].iter().filter(|other| *other == name).count();
        let name = if again == 0 { name.clone() } else { format!("{name}-{}", again + 1) };
        let with = |extension: &str| path.with_added_extension_of(&format!("{name}.{extension}"));
        (with("hgrm"), with("service.hgrm"))
    };
    names.iter().enumerate().map(file).collect()
}

/// Writes a `.hgrm` for every test.
pub(crate) fn write(path: &Path, found: &Found) -> io::Result<()> {
    let tests: Vec<&TestResult> = found.tests.iter().map(|(_, result)| result).collect();
    let titles: Vec<_> = tests.iter().map(|result| result.title.as_str()).collect();
    for (result, (file, service_file)) in tests.iter().zip(paths(path, &titles)) {
        let distribution = |out: &mut dyn Write| write_percentiles(out, result.latencies().histogram());
        write_file(&file, distribution)?;
        if result.tally.corrected.is_some() {
            let service = |out: &mut dyn Write| write_percentiles(out, result.tally.service.histogram());
            write_file(&service_file, service)?;
        }
    }
    Ok(())
}

/// A name for files: letters, digits and `_`.
fn names(title: &str) -> String {
    let name: String = title.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    name.trim_matches('_').chars().take(60).collect()
}

/// The format of `HistogramLogProcessor` and of HdrHistogram's plotter; values in milliseconds.
fn write_percentiles(out: &mut dyn Write, histogram: &Histogram<u64>) -> io::Result<()> {
    let ms = |value: u64| value as f64 / 1e6;
    writeln!(out, "{:>12} {:>14} {:>10} {:>14}\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)")?;
    for step in histogram.iter_quantiles(TICKS) {
        let (value, quantile) =
            (ms(step.value_iterated_to().min(histogram.max())), step.quantile_iterated_to());
        let count = histogram.count_between(0, step.value_iterated_to());
        if quantile < 1.0 {
            writeln!(out, "{value:12.6} {quantile:14.12} {count:10} {:14.2}", 1.0 / (1.0 - quantile))?;
        } else {
            writeln!(out, "{value:12.6} {quantile:14.12} {count:10} {:>14}", "inf")?;
        }
    }
    writeln!(
        out,
        "#[Mean    = {:12.6}, StdDeviation   = {:12.6}]",
        histogram.mean() / 1e6,
        histogram.stdev() / 1e6
    )?;
    writeln!(out, "#[Max     = {:12.6}, Total count    = {:12}]", ms(histogram.max()), histogram.len())?;
    writeln!(out, "#[Buckets = {:12}, SubBuckets     = {:12}]", histogram.buckets(), 2048)
}

/// `FILE` and an extension more.
trait AddExtension {
    fn with_added_extension_of(&self, extension: &str) -> PathBuf;
}

impl AddExtension for Path {
    fn with_added_extension_of(&self, extension: &str) -> PathBuf {
        let mut name = self.as_os_str().to_owned();
        name.push(".");
        name.push(extension);
        PathBuf::from(name)
    }
}
