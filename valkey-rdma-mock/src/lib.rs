//! A mock Valkey in memory, and faults that misbehave on purpose, for tests of clients and servers.
//!
//! [`Mock`] is a [`Handler`](valkey_rdma_server::Handler) that behaves like a small Valkey; the program `valkey-rdma-mock`
//! serves it.

#![forbid(unsafe_code)]

mod args;
mod client;
mod commands;
mod config;
mod decimal;
mod failure;
pub mod faults;
mod functions;
mod glob;
mod mock;
mod state;
mod store;
mod subscriptions;
mod tracking;
mod waiters;

pub use mock::Mock;
pub use valkey_rdma_server::{BindError, DeviceKind, Limits, Server, TransportConfig, TransportError};
