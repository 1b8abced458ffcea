//! Valkey servers over RDMA and TCP.
//!
//! A [`Server`] listens on any number of addresses, reads its clients' commands, passes them to a [`Handler`] and sends the
//! replies, in RESP2 or RESP3. The handler knows nothing about transports. The server knows only the commands that clients
//! send about the connection itself, such as `HELLO` and `PING` ([`Handler::basics`]).
//!
//! ```
//! use valkey_rdma_server::{Command, Handler, Peer, Reply, Server};
//!
//! /// Answers every command with its name.
//! struct Parrot;
//!
//! impl Handler for Parrot {
//!     type Session = ();
//!
//!     fn session(&self, _peer: &Peer) {}
//!
//!     async fn call(&self, _peer: &mut Peer, _session: &mut (), command: Command) -> Result<Reply, Reply> {
//!         Ok(Reply::from(command.name()))
//!     }
//! }
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let server = Server::builder(Parrot).listen("valkey://127.0.0.1:0").start().await?;
//! println!("valkey-cli -u {}", server.urls().next().unwrap());
//! server.shutdown().await;
//! # Ok::<_, valkey_rdma_server::BindError>(())
//! # }).unwrap();
//! ```
//!
//! - `examples/counter.rs` is a whole server with a command and state, over TCP and RDMA. `examples/messages.rs` has users of its own
//!   (`AUTH` and `HELLO ... AUTH`), subscribers, a command that waits, `INFO` and an orderly end.
//! - [`Limits`] bound what one client may use, and how many clients there are. The defaults are Valkey's. The memory of all
//!   clients together has no limit, except what their RDMA connections pin ([`TransportConfig::max_pinned_bytes`]): with untrusted clients,
//!   choose [`Limits`] whose sum over all connections fits into memory.
//! - With glibc, a process keeps the memory of emulated connections after they have closed. `MALLOC_MMAP_THRESHOLD_=131072` in its
//!   environment makes glibc return that memory to the system.
//! - A handler sees whole commands and returns whole replies: there is no streaming. An argument is received into memory, up to
//!   [`Limits::max_argument_len`], before [`Handler::call`] runs.
//! - TLS, over TCP and over RDMA: URLs such as `valkeys://0.0.0.0:6379?cert=FILE&key=FILE`, or [`Address::tls`]. [`Peer::tls`] has what a
//!   client has agreed on, and its certificate. Certificates that have changed are read again by [`Server::reload_tls`].
//! - [`Builder::direct`] offers direct transfers: large values that the server writes into registered memory of its client, or reads out
//!   of it ([`Peer::direct`]).
//! - [`Builder::threads`] spreads the connections over several processors.
//! - [`Pusher`] sends messages to a client at any time: the base of publish/subscribe.
//! - The crate `valkey-rdma-mock` has a handler that behaves like a small Valkey, for tests.
//!
//! | Cargo feature | Meaning |
//! |---|---|
//! | `verbs` (default) | RDMA devices through kernel verbs. Needs nothing to build; rdma-core is loaded when first used |
//! | `rdma-sys` | the same, linked at build time |
//! | `emulated` | the emulated device: RDMA in software, for tests |
//! | `tls` | TLS over TCP and RDMA, with rustls and ring. Needs a C compiler to build |

#![forbid(unsafe_code)]

mod accept;
mod address;
mod basics;
mod builder;
mod connection;
mod direct;
mod ending;
mod handler;
mod limits;
mod link;
mod listener;
mod monitor;
mod peer;
mod push;
mod registry;
mod remote_ranges;
mod server;
mod workers;

pub use address::Address;
pub use basics::answer_basic;
pub use builder::Builder;
pub use direct::{Direct, DirectError};
pub use handler::{Handler, HandlerFn, handler_fn};
pub use limits::Limits;
pub use listener::{BindError, Listening};
pub use monitor::{Counters, Monitor, Refused};
pub use peer::{Peer, Transport};
pub use push::Pusher;
pub use remote_ranges::RemoteRanges;
pub use server::Server;
pub use valkey_rdma_resp::{Command, Protocol, Reply};
pub use valkey_rdma_transport::tls::{ClientAuth, ServerTls, TlsError, TlsInfo};
pub use valkey_rdma_transport::{
    Config as TransportConfig, DeviceKind, DirectMemory, DirectMemoryError, DirectSlice, RemoteRange,
    TransportError,
};

/// The README's example, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
