//! A mock Valkey in memory, and faults on purpose, for tests of clients and servers.
//!
//! - [`MockServer`] serves a mock in one line, with replies, delays and lost connections by command, and a record of what it received.
//! - [`Mock`] is a [`Handler`](valkey_rdma_server::Handler) that behaves like a small Valkey. The program
//!   `valkey-rdma-mock` serves it.
//! - [`MockCluster`] is a cluster of them, whose slots move and whose nodes fail on command.
//! - [`faults`] wraps a device so that it misbehaves in a scripted way.
//! - [`forward`] is a proxy in front of a real Valkey.
//!
//! ```
//! use valkey_rdma_mock::MockServer;
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let mock = MockServer::start().await;
//! mock.set("greeting", "hello");
//! mock.on("INCR").error("LOADING wait").times(1);
//! let url = mock.url(); // emulated://127.0.0.1:...
//! # let _ = url;
//! # });
//! ```

#![forbid(unsafe_code)]

mod arena;
mod args;
mod client;
mod cluster;
mod commands;
mod config;
mod context;
mod decimal;
mod encryption;
mod failure;
pub mod faults;
mod functions;
mod glob;
mod held_port;
mod membership;
mod mock;
mod mock_server;
mod proxy;
mod recorder;
mod rules;
mod session;
mod state;
mod store;
mod subscriptions;
mod tracking;
mod transfer;
mod version;
mod waiters;

pub use cluster::{MockCluster, MockClusterBuilder, Transports};
pub use membership::Endpoint;
pub use mock::Mock;
pub use mock_server::MockServer;
pub use proxy::forward;
pub use recorder::Received;
pub use rules::Rule;
pub use valkey_rdma_server::{
    Address, BindError, Command, DeviceKind, Limits, Reply, Server, ServerTls, TlsError, TransportConfig,
    TransportError,
};
