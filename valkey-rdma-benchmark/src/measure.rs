//! Figures: what a running test counts, and what results are made of it.
//!
//! A [`Tally`] is what one thread counts of one test: [`Latencies`], [`Faults`], replies over time. A [`TestResult`] is a test as a
//! whole, with the transport's [`Counters`] and the [`Outage`]s. [`Comparison`] and [`Sweep`] are made of results. [`Found`] is all
//! of them, for reports, and [`Evidence`] the comparisons of `--evidence`.

mod comparison;
mod counters;
mod environment;
mod evidence;
mod faults;
mod found;
mod latencies;
mod outage;
mod result;
mod statistics;
mod sweep;
mod tally;

pub(crate) use comparison::{Comparison, Round, Side};
pub(crate) use counters::{Counter, Counters, PerRequest};
pub(crate) use environment::Environment;
pub(crate) use evidence::{About, CellFound, Evidence, Published};
pub use faults::{Fault, FaultKind, Faults};
pub(crate) use found::Found;
pub use latencies::Latencies;
pub use outage::Outage;
pub(crate) use outage::Outages;
pub use result::TestResult;
pub(crate) use result::{RunInfo, Shape};
pub(crate) use statistics::Ratio;
pub(crate) use sweep::{Sweep, SweepStep, Verdict};
pub(crate) use tally::{Replies, Series, Tally};
