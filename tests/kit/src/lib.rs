//! What tests of several crates share: programs of this workspace in processes of their own, and bounded waits.
//!
//! - [`program`]: the path of a program of this workspace, built from the present sources.
//! - [`Child`]: a process whose output is kept, and which is killed when dropped.
//! - [`csv_column`]: a column of a load tool's CSV.
//! - [`wait_until`]: waits for a condition and fails after a deadline instead of hanging.

#![forbid(unsafe_code)]

mod child;
mod csv;
mod programs;
mod wait;

pub use child::{Child, Signal, describe};
pub use csv::csv_column;
pub use programs::program;
pub use wait::wait_until;
