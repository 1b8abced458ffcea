//! What was measured.

use std::time::Duration;

use hdrhistogram::Histogram;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};

use super::run::{Device, Run};
use super::system_calls::system_calls;

/// What a check has found so far.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Found {
    /// The device of this side, and that of the peer.
    pub devices: Option<(Device, Device)>,
    /// Buffers that were compared.
    pub compared: u64,
    /// What did not match.
    pub differences: Vec<String>,
    /// What was measured.
    pub rows: Vec<Row>,
    /// Anything else worth a line.
    pub notes: Vec<String>,
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// This side.
    There,
    /// The peer.
    Back,
}

/// One figure with its circumstances.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Who sends.
    pub direction: Direction,
    /// What was done.
    pub run: Run,
    /// What came of it.
    pub figures: Figures,
}

/// What came of one run, as the end that drove it saw it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// Messages.
    pub messages: u64,
    /// Latencies, unless many were in flight at once.
    pub latency: Option<Latency>,
    /// The rate, if many were in flight at once.
    pub rate: Option<Rate>,
    /// The cost at the end that drove.
    pub here: Side,
    /// The cost at the other end.
    pub there: Side,
}

/// Percentiles of latencies, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// The smallest.
    pub min: u64,
    /// The median.
    pub p50: u64,
    /// 99 of 100 are not above.
    pub p99: u64,
    /// 999 of 1000 are not above.
    pub p999: u64,
    /// The largest.
    pub max: u64,
}

/// How many messages arrived in a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Messages per second.
    pub messages: f64,
    /// Bytes per second.
    pub bytes: f64,
}

/// What a run took of one machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// Time of CPUs in this process, in nanoseconds, user and system.
    pub cpu: u64,
    /// Context switches of this process.
    pub switches: u64,
    /// System calls of this process. `None`: not [counted](super::count_system_calls).
    pub system_calls: Option<u64>,
}

impl Side {
    /// What this process has taken since it began.
    pub(super) fn now() -> Self {
        let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
            return Self { system_calls: system_calls(), ..Self::default() };
        };
        let cpu = usage.user_time() + usage.system_time();
        let count = |value: nix::libc::c_long| u64::try_from(value).unwrap_or(0);
        Self {
            cpu: u64::try_from(cpu.num_microseconds()).unwrap_or(0) * 1000,
            switches: count(usage.voluntary_context_switches()) + count(usage.involuntary_context_switches()),
            system_calls: system_calls(),
        }
    }

    /// What it has taken since then.
    pub(super) fn since(before: Self) -> Self {
        let now = Self::now();
        Self {
            cpu: now.cpu.saturating_sub(before.cpu),
            switches: now.switches.saturating_sub(before.switches),
            system_calls: now
                .system_calls
                .zip(before.system_calls)
                .map(|(now, before)| now.saturating_sub(before)),
        }
    }
}

/// Latencies before these are not counted: caches, and the peer that just began to listen.
pub(super) const WARM_UP: u64 = 8;

/// Latencies while they are measured.
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(super) fn new() -> Self {
        // Three digits; longer than a minute is a minute.
        Self(Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order"))
    }

    pub(super) fn add(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn percentiles(&self) -> Latency {
        let at = |quantile| self.0.value_at_quantile(quantile);
        Latency { min: self.0.min(), p50: at(0.5), p99: at(0.99), p999: at(0.999), max: self.0.max() }
    }
}
