//! A mock Valkey in memory, and faults on purpose, for tests of clients and servers.
//!
//! - [`Mock`] is a [`Handler`](valkey_rdma_server::Handler) that behaves like a small Valkey. The program
//!   `valkey-rdma-mock` serves it.
//! - [`MockCluster`] is a cluster of them, whose slots move and whose nodes fail on command.
//! - [`faults`] wraps a device so that it misbehaves in a scripted way.
//! - [`forward`] is a proxy in front of a real Valkey.
//!
//! ```
//! use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let any_port = "127.0.0.1:0".parse().unwrap();
//! let server = Server::builder(Mock::new()).rdma(DeviceKind::Emulated, any_port, &TransportConfig::default()).start().await?;
//! let url = server.urls().next().unwrap(); // emulated://127.0.0.1:...
//! # drop(url);
//! # server.shutdown().await;
//! # Ok::<_, valkey_rdma_mock::BindError>(())
//! # }).unwrap();
//! ```

#![forbid(unsafe_code)]

mod args;
mod client;
mod cluster;
mod commands;
mod config;
mod context;
mod decimal;
mod failure;
pub mod faults;
mod functions;
mod glob;
mod membership;
mod mock;
mod proxy;
mod session;
mod state;
mod store;
mod subscriptions;
mod tracking;
mod version;
mod waiters;

pub use cluster::{MockCluster, MockClusterBuilder, Transports};
pub use membership::Endpoint;
pub use mock::Mock;
pub use proxy::forward;
pub use valkey_rdma_server::{BindError, DeviceKind, Limits, Server, TransportConfig, TransportError};
