//! What the load tool `valkey-rdma-benchmark` is made of.
//!
//! The tool reads its [command line](args), opens its connections, runs one [test](workload) after the other, checks
//! every reply, [measures](measure) each command to the last byte of its reply, counts what went wrong
//! ([faults]), and [reports](report).

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a panic is how a test fails"))]

pub mod args;
pub mod background;
pub mod benchmark;
pub mod counters;
pub mod demo;
pub mod faults;
pub mod interrupt;
pub mod measure;
pub mod progress;
pub mod report;
pub mod result;
pub mod run;
pub mod target;
pub mod verify;
pub mod workload;
