//! Values of flags, and how they are read.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use valkey_rdma_client::Endpoint;

/// What `--demo` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DemoForm {
    /// What ran, one comparison, what to try next
    Screen,
    /// All workloads with percentiles and counters, in wide tables
    Tables,
}

/// How to reach the server that `-h` and `-p` name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// RDMA through the machine's verbs devices
    Rdma,
    /// TCP
    Tcp,
    /// The software device: works anywhere, is not RDMA
    Emulated,
}

/// The client's range, in the type that clap wants.
pub(super) fn rx_sizes() -> RangeInclusive<i64> {
    let (least, most) = Endpoint::RX_SIZES.into_inner();
    least.into()..=most.into()
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e7 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds, greater than 0 and at most 10000000".to_owned()),
    }
}

pub(super) fn seconds_or_none(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e7).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds, from 0 to 10000000".to_owned()),
    }
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate == 0.0 || (1e-3..=1e9).contains(&rate) => Ok(rate),
        _ => Err("expected 0, or a number from 0.001 to 1000000000".to_owned()),
    }
}

pub(super) fn json_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
        true => Ok(path),
        false => Err("expected a file that ends in .json".to_owned()),
    }
}

pub(super) fn millis(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(millis) if millis > 0.0 && millis <= 1e9 => Ok(millis),
        _ => Err("expected milliseconds, greater than 0 and at most 1000000000".to_owned()),
    }
}
