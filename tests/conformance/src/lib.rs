//! Tests any implementation of Valkey over RDMA from outside: one case per rule of the protocol.
//!
//! Each [`Case`] has an id, the clause of `spec/protocol.md` that it tests, a stimulus and an expectation. Running it
//! gives a [`Record`]: a verdict and, if it failed, everything that was sent and received, in order.
//!
//! - [`server`]: scripted clients against any server.
//! - [`client`]: a server with scripted misbehaviour against any client.
//! - [`peer`]: one side of a connection that does exactly what a case asks for, right or wrong, and records all of it.
//! - [`report`]: a table, JSON, JUnit.
//!
//! The program `valkey-rdma-conformance` runs the cases.
//!
//! # Adding a case
//!
//! 1. Pick the file of its group in `server/` or `client/`, or add one and name it in `server.rs` or `client.rs`.
//! 2. Write an `async fn` that brings the stimulus about and returns a [`Finding`](peer::Finding) if the answer is wrong.
//!    For a server, [`Session`](peer::Session) keeps the rules and checks the server's; its `peer` breaks them. To show
//!    that something does *not* come, ask for something that comes after it (`ask`, `ping`) instead of waiting for
//!    nothing. For a client a case is a script of [faults](valkey_rdma_mock::faults) and how the client must end.
//! 3. State its attributes in a constant above the function, and name that in the group's list. If a published server
//!    dies of it, mark it `.hostile()`.
//! 4. If the rule is new: plant a defect that breaks it, in `tests/planted_server.rs` or `tests/conformance_client.rs`.

#![forbid(unsafe_code)]

mod case;
mod clause;
pub mod client;
mod known;
pub mod peer;
pub mod report;
pub mod server;

pub use case::{Case, Record, Verdict};
pub use clause::{basis, level, rule};
pub use known::Known;
