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
//! options and can be built in code. Nothing falls back to anything by itself.
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
//! A task with several commands at hand puts them into a [`Pipeline`].
//!
//! # When something fails
//! An error reply is [`Error::Server`] and leaves the connection as it was. [`Error::Lost`] ends it for every clone,
//! and [`Error::may_have_run`] answers what matters before a retry:
//!
//! ```no_run
//! # use valkey_rdma_client::{Client, Error};
//! # async fn example(client: Client) {
//! match client.command(["INCR", "visits"]).await {
//!     Ok(count) => println!("{:?}", count.as_int()),
//!     Err(Error::Server(error)) => println!("the server said no: {error}"),
//!     Err(error) if error.may_have_run() => println!("counted or not, nobody knows: {error}"),
//!     Err(error) => println!("not counted, safe to try again: {error}"),
//! }
//! # }
//! ```
//!
//! # How it works
//! One task per connection, the driver, owns the stream. Calls hand it encoded commands through a bounded queue; it
//! writes what waits in batches, reads at the same time, and gives each reply to the oldest request without one. A
//! caller that has gone away keeps its place in that order.
#![forbid(unsafe_code)]

mod backlog;
#[cfg(feature = "blocking")]
pub mod blocking;
mod cache;
mod client;
mod command;
mod config;
mod connect;
mod convert;
mod decoder;
mod dedicated;
mod driver;
mod endpoint;
mod error;
mod in_flight;
mod info;
mod large;
mod link;
mod outbox;
mod pipeline;
pub mod pubsub;
mod reconnect;
#[cfg(feature = "redis")]
mod redis_bridge;
mod request;
mod script;
mod server_error;
mod shared;
mod socket;
mod tally;
mod transaction;
mod value;
mod wire;

pub use cache::{Cache, CacheStats, Invalidation, Invalidations};
pub use client::Client;
pub use command::Command;
pub use config::Config;
pub use convert::FromValue;
pub use decoder::ProtocolError;
pub use dedicated::Dedicated;
pub use endpoint::{Endpoint, EndpointError, Protocol, Transport};
pub use error::{
    AbortedTransaction, ConnectCause, ConnectError, Error, Fate, LostCause, LostConnection, RefusedCommand,
    TimedOut, UnexpectedReply,
};
pub use info::{ConnectionInfo, ConnectionStatus, Counters, State};
pub use large::{ValueReader, ValueWriter};
pub use pipeline::Pipeline;
pub use pubsub::Subscriber;
pub use reconnect::Backoff;
pub use script::{Function, Script};
pub use server_error::{ServerError, ServerErrorKind};
pub use transaction::{Transaction, Watch};
pub use value::Value;

pub use valkey_rdma_transport as transport;
pub use valkey_rdma_transport::Polling;
