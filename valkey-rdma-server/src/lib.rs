//! Valkey servers over RDMA and TCP.
//!
//! A [`Server`] listens on any number of addresses, reads commands from whoever connects, hands them to a [`Handler`]
//! and sends its replies back, in RESP2 or RESP3. The handler knows nothing about transports; the server knows
//! nothing about commands.
//!
//! ```
//! use valkey_rdma_server::{Command, Handler, Peer, Reply, Server};
//!
//! /// Answers every command with its own name.
//! struct Parrot;
//!
//! impl Handler for Parrot {
//!     type Session = ();
//!
//!     fn session(&self, _peer: &Peer) {}
//!
//!     async fn call(&self, _peer: &mut Peer, _session: &mut (), command: Command) -> Reply {
//!         Reply::bulk(command.name().to_vec())
//!     }
//! }
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let server = Server::builder(Parrot).tcp("127.0.0.1:0".parse().unwrap()).start().await?;
//! println!("valkey-cli -u {}", server.urls().next().unwrap());
//! server.shutdown().await;
//! # Ok::<_, valkey_rdma_server::BindError>(())
//! # }).unwrap();
//! ```
//!
//! `examples/counter.rs` is a whole server with a command and a state of its own, over TCP and RDMA.
//!
//! The crate `valkey-rdma-mock` has a handler that behaves like a small Valkey, for tests.

#![forbid(unsafe_code)]

mod config;
mod connection;
mod error;
mod handler;
mod listener;
mod password;
mod push;
mod refused;
mod server;
mod shutdown;

pub use config::Config;
pub use error::BindError;
pub use handler::{Handler, Peer, Transport};
pub use password::{Guarded, Password};
pub use push::Pusher;
pub use refused::Refused;
pub use server::{Builder, Endpoint, Server};
pub use valkey_rdma_resp::{Command, Protocol, Reply};
pub use valkey_rdma_transport::{Config as TransportConfig, DeviceKind, TransportError};
