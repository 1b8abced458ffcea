//! What the load tool `valkey-rdma-benchmark` is made of.
//!
//! The tool reads its [command line](args), makes a [plan] of it, opens its connections, and lets the [generator] send
//! one [workload] after the other: as a [session] of tests, in [turns](compare) with another server, or at
//! [rising rates](sweep). Every [reply] is checked, every command [measured](measure) to the last byte of its reply, what
//! went wrong counted ([faults], [outage]), and the [result] [reported](report).

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a panic is how a test fails"))]
#![forbid(unsafe_code)]

pub mod args;
pub mod benchmark;
pub mod bytestream;
pub mod compare;
pub mod counters;
pub mod demo;
pub mod environment;
pub mod faults;
pub mod generator;
pub mod interrupt;
pub mod matrix;
pub mod measure;
pub mod outage;
pub mod output;
pub mod plan;
pub mod progress;
pub mod reply;
pub mod report;
pub mod result;
pub mod session;
pub mod sweep;
pub mod workload;
