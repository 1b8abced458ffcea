//! Load for Valkey servers over RDMA, TCP or an emulated device, every reply checked: a library, and the program
//! `valkey-rdma-benchmark` on top.
//!
//! [`Load`] is the library: it puts a load on a server, and returns a [`TestResult`] for each test. [`main`] is the program.
//!
//! Inside, `workload` says what is sent and what must come back. `drive` sends it on connections that run on threads of their own. `check`
//! compares every reply with the right one, and `measure` holds the figures. `run` plans tests and measures them, `report` shows what
//! was found, and `program` is the command line with its modes.
//!
//! Other client libraries can be put under the same load and compared with this project's: a program with a [`Library`] for each
//! calls [`main_with`].

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a panic is how a test fails"))]
#![forbid(unsafe_code)]

mod check;
mod drive;
mod load;
mod measure;
mod program;
mod report;
mod run;
mod workload;

use std::process::ExitCode;

pub use drive::{CALL_LIMIT, Connection, Failure, Libraries, Library, Limit, Verify};
pub use load::{Load, LoadError};
pub use measure::{Fault, FaultKind, Faults, Latencies, Outage, TestResult};

/// Runs the program on its command line, up to its exit status.
#[must_use]
pub fn main() -> ExitCode {
    main_with(&Libraries::default())
}

/// As [`main`], for a program that can put these client libraries under load too: `--library NAME`.
#[must_use]
pub fn main_with(libraries: &Libraries) -> ExitCode {
    program::main(libraries)
}
