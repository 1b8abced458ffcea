//! The conformance suite: what a server or a client must do, one case per rule.
//!
//! Each [`Case`] has an id, the clause of `spec/protocol.md` that it is about, a stimulus and an expectation. Running it
//! gives a [`Record`]: a verdict, and if it failed everything that was sent and seen, in order.
//!
//! - [`server`]: scripted clients against any server.
//! - [`client`]: a server with scripted misbehaviour against any client.
//! - [`report`]: a table, JSON, JUnit.
//!
//! # Adding a case
//!
//! 1. Pick the file of its group in `server/` or `client/`, or make one and name it in `mod.rs` there.
//! 2. Write an `async fn` that brings the stimulus about and returns a [`Finding`] if the answer is wrong. For a server,
//!    [`Session`](crate::peer::Session) keeps the rules and checks the server's; its `peer` breaks them. To show that
//!    something does *not* come, ask for something that comes after it (`ask`, `ping`): never wait for nothing. For a
//!    client a case is a script of [faults](valkey_rdma_server::faults) and how the client is to end.
//! 3. Add its entry to the group's list. If a published server dies of it, mark it `.hostile()`.
//! 4. If the rule is new: plant a defect that breaks it, in `tests/planted_server.rs` or `tests/conformance_client.rs`.

mod case;
pub mod client;
pub mod report;
pub mod server;

pub use case::{Case, Record, Verdict};

use crate::peer::Finding;
