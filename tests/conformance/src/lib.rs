//! What tests any implementation of Valkey over RDMA, from outside.
//!
//! - [`peer`]: one side of a connection that does exactly what it is told, right or wrong, and records all it sends and
//!   sees.
//! - [`conformance`]: the cases that a server or a client must pass, and their reports. The program
//!   `valkey-rdma-conformance` runs them.
//! - [`soak`]: load with faults at random, for as long as one likes.

#![forbid(unsafe_code)]

pub mod conformance;
pub mod peer;
pub mod soak;
