//! Valkey servers over RDMA and TCP, and a mock Valkey for tests.
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
//! [`Mock`] is a handler that behaves like a small Valkey; the program `valkey-rdma-mock` serves it.

#![forbid(unsafe_code)]

mod config;
mod connection;
mod error;
pub mod faults;
mod handler;
mod listener;
mod mock;
mod password;
mod push;
mod refused;
mod server;
mod shutdown;

// The mock's paths, until it has moved out.
mod command {
    pub(crate) use valkey_rdma_resp::Command;
}
mod encode {
    pub(crate) use valkey_rdma_resp::double;
}
mod integer {
    pub(crate) use valkey_rdma_resp::integer::parse;
}
mod reply {
    pub(crate) use valkey_rdma_resp::Reply;
}

pub use config::Config;
pub use error::BindError;
pub use handler::{Handler, Peer, Transport};
pub use mock::Mock;
pub use password::{Guarded, Password};
pub use push::Pusher;
pub use refused::Refused;
pub use server::{Builder, Endpoint, Server};
pub use valkey_rdma_resp::{Command, Protocol, Reply};
pub use valkey_rdma_transport::{Config as TransportConfig, DeviceKind, TransportError};
