//! Async multiplexed Valkey client over RDMA, with TCP beside it.
//!
//! ```no_run
//! use valkey_rdma_client::Client;
//!
//! # async fn example() -> Result<(), valkey_rdma_client::Error> {
//! let client = Client::connect("rdma://10.0.0.7:6379").await?;
//! println!("{}", client.info()); // which transport, device and windows this really is
//!
//! client.command(["SET", "greeting", "hello"]).await?;
//! let greeting = client.command(["GET", "greeting"]).await?;
//! assert_eq!(greeting.as_str(), Some("hello"));
//! # Ok(())
//! # }
//! ```
//!
//! # Where to connect
//! A URL says over what: `rdma://` is RDMA through kernel verbs (feature `verbs`), `valkey://` and `redis://` are TCP,
//! and `emulated://` is a software device for tests and trials on machines without RDMA. [`Endpoint`] lists the
//! options and can be built in code. Nothing falls back to anything by itself: `fallback=tcp` allows it, and
//! [`Client::info`] then says why it was needed.
//!
//! # Many tasks, one connection
//! Clone the [`Client`] into as many tasks as you like. Commands that wait at the same time leave together, which is
//! where most of the speed comes from:
//!
//! ```no_run
//! # use valkey_rdma_client::{Client, Error};
//! # async fn example(client: Client) -> Result<(), Error> {
//! let tasks: Vec<_> = (0..50)
//!     .map(|n| {
//!         let client = client.clone();
//!         tokio::spawn(async move { client.command(["INCR", &format!("counter:{n}")]).await })
//!     })
//!     .collect();
//! for task in tasks {
//!     let count = task.await.expect("the task does not panic")?;
//!     println!("{:?}", count.as_int());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A task with several commands at hand puts them into a [`Pipeline`], or into a [`Transaction`] if they belong
//! together. [`Config::connections`] makes it more connections than one.
//!
//! # Replies and types
//! A reply is a [`Value`], which converts to what the caller wants ([`FromValue`]):
//!
//! ```no_run
//! # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
//! let visits: i64 = client.command(["INCR", "visits"]).await?.try_into()?;
//! let name: Option<String> = client.command(["GET", "name"]).await?.try_into()?;
//! # Ok(())
//! # }
//! ```
//!
//! With feature `redis`, redis-rs's typed commands, scripts and pipelines run on a [`Client`] as they are.
//!
//! # When something fails
//! An error reply is [`Error::Server`] and leaves the connection as it was. A lost connection comes back by itself;
//! commands wait for it for a while. What was under way is sent again only if that is safe. [`Error::fate`] answers what
//! matters before a retry:
//!
//! ```no_run
//! # use valkey_rdma_client::{Client, Error, Fate};
//! # async fn example(client: Client) {
//! match client.command(["INCR", "visits"]).await {
//!     Ok(count) => println!("{:?}", count.as_int()),
//!     Err(Error::Server(error)) => println!("the server said no: {error}"),
//!     Err(error) if error.fate() == Fate::NotSent => println!("not counted, safe to try again: {error}"),
//!     Err(error) => println!("counted or not, nobody knows: {error}"),
//! }
//! # }
//! ```
//!
//! # What needs a connection of its own
//! | for | use |
//! |---|---|
//! | subscriptions | [`Client::subscriber`] |
//! | WATCH | [`Client::watch`] |
//! | commands that block | [`Client::blocking_command`] |
//! | values of many megabytes | [`Client::get_into`], [`Client::stream_reply`], [`Client::stream_argument`] |
//! | anything else that changes a connection | [`Client::dedicated`] |
//!
//! [`Cache`] keeps values on this side for as long as the server says that they hold.
//!
//! # Large values without copies
//! Over RDMA, what lies in a [`BufferPool`] is sent from where it is, without passing through a send buffer:
//!
//! ```no_run
//! # use valkey_rdma_client::{BufferPool, Client, Command};
//! # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
//! let pool = BufferPool::new(8, 2 << 20)?; // as many as are filled or sent at once
//! let mut buffer = pool.take().await;
//! buffer[..1 << 20].fill(7);
//! let value = buffer.freeze().slice(..1 << 20);
//! client.execute(Command::new("SET").arg("kv:17").arg_bytes(value)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Client::get_into`] reads a value into memory of your own, with the one copy that the protocol takes: out of the
//! window that the server has written it to.
//!
//! # Features
//! | feature | what it adds |
//! |---|---|
//! | `verbs` (default) | `rdma://` over kernel verbs; links rdma-core |
//! | `redis` | redis-rs's `ConnectionLike` for [`Client`] |
//! | `blocking` | `blocking`, the client for programs without an async runtime |
//! | `metrics` | counters through the `metrics` facade: `valkey_client_commands_total`, `_batches_total`, `_replies_total`, `_reconnects_total`, `_retries_total`, `_timeouts_total` |
//!
//! # How it works
//! One task per connection drives the stream. Calls hand it encoded commands through a bounded queue; it writes what
//! waits in batches, reads at the same time, and gives each reply to the oldest request without one. A caller that has
//! the connection for itself writes its command itself, while it is polled. One that has gone away keeps its place in
//! the order of replies. When the connection is lost, the same task makes the next one, and the queue outlives both.
#![forbid(unsafe_code)]

#[cfg(feature = "blocking")]
pub mod blocking;
mod cache;
mod client;
mod config;
mod connection;
mod dedicated;
mod endpoint;
mod error;
mod multiplexer;
mod pipeline;
pub mod pubsub;
#[cfg(feature = "redis")]
mod redis;
mod resp;
mod script;
mod stats;
mod streaming;
mod sync;
mod transaction;

pub use cache::{Cache, CacheStats, Invalidation, Invalidations};
pub use client::Client;
pub use config::{Backoff, Config};
pub use dedicated::Dedicated;
pub use endpoint::{Endpoint, EndpointError, Transport};
pub use error::{
    AbortedTransaction, ConnectCause, ConnectError, Error, Fate, LostCause, LostConnection, TimedOut,
};
pub use pipeline::Pipeline;
pub use pubsub::Subscriber;
pub use resp::{Command, RefusedCommand};
pub use script::{Function, Script};
pub use stats::{ConnectionInfo, ConnectionStatus, Counters, Purpose, State};
pub use streaming::{ValueReader, ValueWriter};
pub use transaction::{Transaction, Watch};

pub use valkey_rdma_resp::{
    FromValue, Protocol, ProtocolError, ServerError, ServerErrorKind, UnexpectedReply, Value,
};
pub use valkey_rdma_transport as transport;
pub use valkey_rdma_transport::{BufferPool, Polling, PoolBuffer, UnusablePool};
