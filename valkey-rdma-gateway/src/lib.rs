//! A local gateway: any Valkey client reaches a server over RDMA.
//!
//! Applications connect to a Unix socket or a local port as ever. The gateway carries their commands to the server over few RDMA
//! connections, merged into batches. Any transport may be on either side, so the same program gives RDMA clients access to servers
//! without RDMA.
//!
//! ```no_run
//! use valkey_rdma_gateway::{Activation, Config, Gateway, RouteConfig};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let route = RouteConfig::new(vec!["unix:/run/valkey.sock".parse()?], "rdma://10.0.0.7:6379");
//! let gateway = Gateway::start(&Config::new(route), &Activation::default()).await?;
//! println!("ready {}", gateway.listening()[0]);
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//! Requests are cut at command boundaries and replies at frame boundaries; the bytes between are passed on unchanged. One task per
//! shared connection takes what all clients have queued and writes it as one batch. It passes replies on in the order of the commands.
//!
//! Clients share a connection if user, database and protocol version are equal. A client that leaves state in its connection
//! ([`Share::Auto`]) moves to a private one, and back when the state ends. [`Limits`] bound what clients may use.
//!
//! # Clusters
//! With [`RouteConfig::cluster`], local clients see one server, and each command goes to the node of its keys, by the client library's
//! `Client`. State is kept in the gateway: it queues transactions of one slot, and the library moves subscriptions, watched keys and
//! blocking commands with their nodes. What concerns one node or one connection is refused with the reason: see docs/gateway.md.
//!
//! # Direct transfers
//! Clients of listeners `rdma:` may name memory of theirs in BLOB.GET and BLOB.SET ([`RouteConfig::direct`]). The gateway sends GET and SET to the
//! server, and moves the value through [`Limits::direct_bytes`] of registered memory as it arrives: see docs/large-values.md.
//!
//! # When the server is lost
//! | command | its client |
//! |---|---|
//! | was sent, in part or as a whole | is closed: the command may have run |
//! | was sent on a shared connection, and all commands of its client that have no reply only read | gets the reply: these are sent again, once |
//! | was not sent, and there is a connection within [`offline_ms`](Limits::offline_ms) | gets the reply: it is sent on the new connection |
//! | was not sent, and there is none | is closed: the command did not run |
//! | was not sent, because the limits allow no connection | gets the error `NOUPSTREAM` |
//!
//! The end of a private connection ends its client. Other clients keep their connections. docs/gateway.md has the whole table.
//!
//! # Passwords
//! The server checks each AUTH, on a connection that is used for nothing else. The gateway keeps a login in memory as long as a client or
//! connection uses it, to log in private and reconnected connections. Logs and errors never contain it. Clients that do not log in use the
//! login of the server's URL, or that of [`RouteConfig::password_file`].
#![forbid(unsafe_code)]

// From the local side to the servers; what all of them use is at the end.
// Sockets that clients connect to, and how many clients and files there may be.
mod front;
// One local client: its state machine, and the ways of its commands.
mod session;
// What the gateway reads of a command.
mod command;
// The connections to a server: shared by clients, or private.
mod upstream;
// A Valkey Cluster behind a route, reached by the client library.
mod cluster;
// The configuration and its limits.
mod config;
// Figures, health and the log.
mod observe;

mod core;
mod error;
mod gateway;

pub use config::limits::Limits;
pub use config::route::Share;
pub use config::tls::RouteTls;
pub use config::{Config, RouteConfig};
pub use error::GatewayError;
pub use front::activation::{Activation, notify};
pub use front::listen::Listen;
pub use gateway::Gateway;
pub use valkey_rdma_transport::tls::ClientAuth;
