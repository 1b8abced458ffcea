//! What tests of several crates share: programs of this workspace in processes of their own, and bounded waits.
//!
//! - [`program`]: the path of a program of this workspace, built from the present sources.
//! - [`Authority`]: certificates for tests.
//! - [`Child`]: a process whose output is kept, and which is killed when dropped.
//! - [`csv_column`]: a column of a load tool's CSV.
//! - [`Folder`]: a folder for the files of a test.
//! - [`ReservedPort`]: a port for a server that a test starts later.
//! - [`wait_until`]: waits for a condition and fails after a deadline instead of hanging.

#![forbid(unsafe_code)]

mod authority;
mod child;
mod csv;
mod folder;
mod port;
mod programs;
mod wait;

pub use authority::{Authority, Pair};
pub use child::{Child, Signal, describe};
pub use csv::csv_column;
pub use folder::Folder;
pub use port::ReservedPort;
pub use programs::program;
pub use wait::wait_until;
