//! Does RDMA work here? The library behind the program `valkey-rdma-doctor`.
//!
//! [`machine`] judges one machine from its files and [`probe`] tries things on it; [`server`] connects to a Valkey step by step.
//! What they find is a [`Report`]. [`fabric`] checks and measures the network between machines.
//!
//! ```
//! use valkey_rdma_doctor::machine::{Probes, Root, Wishes, examine};
//! use valkey_rdma_doctor::{Style, Verdict};
//!
//! // Nothing is there: no libraries, no kernel modules, no device.
//! let report = examine(&Root::at("/nonexistent"), &Probes::default(), Wishes::default());
//! assert!(!report.works());
//! println!("{}", report.text(Style::Plain));
//! ```
#![forbid(unsafe_code)]

pub mod fabric;
pub mod machine;
pub mod probe;
mod report;
pub mod server;

pub use report::{Finding, Report, Section, Style, Verdict};
