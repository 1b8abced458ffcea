//! Async multiplexed Valkey client over RDMA, with TCP beside it.
//!
//! ```no_run
//! use valkey_rdma_client::{Client, cmd};
//!
//! # async fn example() -> Result<(), valkey_rdma_client::Error> {
//! let client = Client::connect("rdma://10.0.0.7:6379").await?;
//! println!("{}", client.info()); // which transport, device and windows this really is
//!
//! client.command(cmd!["SET", "greeting", "hello", "EX", 60]).await?;
//! let greeting: String = client.query(["GET", "greeting"]).await?;
//! assert_eq!(greeting, "hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Where to connect
//! The URL scheme chooses the transport. `rdma://` is RDMA through kernel verbs (feature `verbs`), `valkey://` and
//! `redis://` are TCP, and `emulated://` is a software device for tests and trials on machines without RDMA (feature
//! `emulated`). `unix:///path` is a Unix socket of this machine. [`Endpoint`] lists the options and can also be built in code. An RDMA endpoint uses RDMA only, by
//! default. `fallback=tcp` allows TCP, and [`Client::info`] then gives the reason.
//!
//! # TLS
//! With feature `tls`, `valkeys://` and `rediss://` are TLS over TCP, and `rdmas://` is TLS over RDMA. The options name files in PEM, which are
//! read for each connection; without `ca=`, the system's issuers are trusted:
//!
//! ```no_run
//! # async fn example() -> Result<(), valkey_rdma_client::Error> {
//! use valkey_rdma_client::{Client, ClientTls, Endpoint, Transport};
//!
//! let client = Client::connect("valkeys://app:secret@cache.example:6379?ca=/etc/valkey/ca.crt").await?;
//! println!("{}", client.info()); // ends with the version of TLS and the cipher suite
//!
//! let tls = ClientTls::default().with_ca("ca.crt").with_cert("app.crt").with_key("app.key");
//! let client = Client::connect(Endpoint::new(Transport::Rdma, "10.0.0.7", 6379).with_tls(tls)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Nothing is sent but the handshake before the server's certificate was verified, and nothing is ever sent plain instead: not by
//! `fallback=tcp`, not to other nodes of a cluster. Over RDMA, the server must offer TLS, as this project's gateway and servers do. Stock
//! Valkeys do not: the error then says so. [`ConnectionInfo::tls`] has the certificates that the server has shown. Large values of a
//! [`BufferPool`] are copied once more, to be encrypted.
//!
//! # Many tasks, one connection
//! Clone the [`Client`] into as many tasks as you like. Commands that wait at the same time are sent together, which
//! is where most of the speed comes from:
//!
//! ```no_run
//! # use valkey_rdma_client::{Client, Error, cmd};
//! # async fn example(client: Client) -> Result<(), Error> {
//! let tasks: Vec<_> = (0..50)
//!     .map(|n| {
//!         let client = client.clone();
//!         tokio::spawn(async move { client.query::<i64>(cmd!["INCRBY", format!("counter:{n}"), n]).await })
//!     })
//!     .collect();
//! for task in tasks {
//!     println!("{}", task.await.expect("the task does not panic")?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A task with several commands ready puts them into a [`Pipeline`], or into a [`Transaction`] if they belong
//! together. [`Config::connections`] opens more than one connection.
//!
//! # Arguments and replies
//! Arguments are text, bytes, numbers and whatever implements [`ToArg`]; [`cmd!`] mixes them. [`Client::query`] converts the reply to
//! a Rust type ([`FromValue`]), [`Client::command`] returns it as a [`Value`]:
//!
//! ```no_run
//! # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
//! let visits: i64 = client.query(["INCR", "visits"]).await?;
//! let name: Option<String> = client.query(["GET", "name"]).await?;
//! let () = client.query(["DEL", "name"]).await?; // any reply that is not an error
//! let pipeline = client.pipeline().command(["INCR", "visits"]).command(["GET", "name"]);
//! let (visits, name): (i64, Option<String>) = pipeline.query().await?;
//! # Ok(())
//! # }
//! ```
//!
//! With feature `redis`, redis-rs's typed commands, scripts and pipelines run on a [`Client`] unchanged.
//!
//! # When something fails
//! An error reply is [`Error::Server`] and leaves the connection usable. Where a pipeline or a transaction converts its replies, it stands within
//! [`Error::InPipeline`], which names the command; [`Error::server`] and [`Error::fate`] serve for both. After a lost connection, the client
//! reconnects, and commands wait for [`Config::offline_timeout`]. Commands that were in flight are sent again only if
//! that is safe. [`Error::fate`] answers the question that matters before a retry:
//!
//! ```no_run
//! # use valkey_rdma_client::{Client, Error, Fate};
//! # async fn example(client: Client) {
//! match client.query::<i64>(["INCR", "visits"]).await {
//!     Ok(count) => println!("{count}"),
//!     Err(Error::Server(error)) => println!("the server refused: {error}"),
//!     Err(error) if error.fate() == Fate::NotSent => println!("not counted, safe to try again: {error}"),
//!     Err(error) => println!("unknown whether it was counted: {error}"),
//! }
//! # }
//! ```
//!
//! # What needs a dedicated connection
//! | for | use |
//! |---|---|
//! | subscriptions | [`Client::subscriber`] |
//! | WATCH | [`Client::watch`] |
//! | blocking commands | [`Client::blocking_command`] |
//! | SCRIPT KILL, FUNCTION KILL, SHUTDOWN and other commands that [overtake](Client#commands-that-overtake) | [`Client::command`], which does it |
//! | values of many megabytes | [`Client::get_direct`], [`Client::set_direct`], [`Client::get_into`], [`Client::stream_reply`], [`Client::stream_argument`] |
//! | anything else that changes a connection, and has one reply | [`Client::dedicated`] |
//! | bytes of your own RESP: MONITOR, replication | [`Dialer`] |
//!
//! [`Cache`] keeps values on the client and drops each one when the server reports that it changed.
//!
//! # Large values without copies
//! Over RDMA, bytes in a [`BufferPool`] are sent from where they lie, without passing through a send buffer. A
//! [`SendRegion`] does the same for memory that the program has already:
//!
//! ```no_run
//! # use valkey_rdma_client::{BufferPool, Client, cmd};
//! # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
//! let pool = BufferPool::new(8, 2 << 20)?; // as many as are filled or sent at once
//! let mut buffer = pool.take().await;
//! buffer[..1 << 20].fill(7);
//! let value = buffer.freeze().slice(..1 << 20);
//! client.command(cmd!["SET", "kv:17", value]).await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Client::get_into`] reads a value into memory of the caller. The protocol requires one copy: out of the receive
//! window that the server has written.
//!
//! [`Client::get_direct`] and [`Client::set_direct`] need no copy, where the server offers direct transfers: its adapter moves the bytes between
//! the server and [`DirectMemory`] of the caller. Elsewhere the same calls go over the stream.
//!
//! # Cluster
//! `rdma+cluster://node1:6379,node2:6379`, or a list of URLs, connects to a Valkey Cluster. The [`Client`] is the same: it sends each command to
//! the node of its keys, follows slots that move and nodes that fail over. See [`cluster`].
//!
//! # Sentinel
//! `rdma+sentinel://s1:26379,s2:26379/mymaster` connects to the primary that most of the Sentinels report, after it has confirmed
//! its role, and to the next one after a failover. See [`Endpoint`]. Sentinels report TCP ports: `rdma_port=` says how the RDMA
//! port follows from them, as for clusters. A [`Subscriber`] follows too, and reports [`Event::Reconnected`](pubsub::Event::Reconnected).
//! Connections of [`Dedicated`] and of streamed values are not moved: they end when their server does.
//!
//! # Features
//! | feature | what it adds |
//! |---|---|
//! | `verbs` (default) | `rdma://` over kernel verbs; loads rdma-core's libraries at the first use |
//! | `rdma-sys` | the same, with the libraries linked at build time |
//! | `emulated` | `emulated://`, RDMA in software for tests and trials: leave it out of production builds |
//! | `tls` | TLS over TCP, RDMA and streams of the program, with rustls and ring: its build needs a C compiler |
//! | `redis` | redis-rs's `ConnectionLike` for [`Client`] |
//! | `blocking` | `blocking`, the client for programs without an async runtime |
//! | `spans` | a `tracing` span for each call and each attempt to connect, with the names of OpenTelemetry |
//!
//! # What ends a wait
//! With default settings, no server can make a call wait for ever, except commands on a [`Dedicated`] connection over TCP that do not
//! block on purpose:
//!
//! | the server | ends with | after |
//! |---|---|---|
//! | accepts but never answers the login | [`Error::Connect`] | the endpoint's `timeout=`, 5 s |
//! | sends no reply, or half of one | [`Error::TimedOut`] | [`Config::command_timeout`], 30 s |
//! | announces a string longer than 16 GiB, or 1 GiB with addresses of 32 bits | [`Error::Lost`] with a [`RespError`] | at once |
//! | over RDMA: sends nothing, not even keepalives | [`Error::Lost`] | [`Config::keepalive_timeout`], 20 s |
//! | over TCP: its machine answers no probes of the kernel | [`Error::Lost`] | the same |
//! | over TCP: is frozen while a call blocks, or a [`Subscriber`] waits | [`Error::Lost`] with [`LostCause::Silent`], or [`Event::Reconnected`](pubsub::Event::Reconnected) once it can | at most twice the same: it answers no PING |
//! | is a frozen node of a cluster that gives its slots to another | [`Error::Lost`], or another try there | [`Config::silence_limit`], 1 s (2 s on a [`Dedicated`]), and the time to read the map |
//! | sends keepalives, but offers no receive window | [`Error::Lost`] | [`Config::stall_timeout`], 30 s |
//! | does not reply while [`Client::close`] waits | `close` returns | [`Config::close_timeout`], 3 s |
//!
//! Calls on a [`Dedicated`] connection and blocking commands have no time limit of their own ([`Command::timeout`] sets one), because they
//! may take long on purpose. Over RDMA, the two limits for connections end them too. All limits need the [runtime](Client#runtime) that
//! connected.
//!
//! # How it works
//! One task per connection drives the stream. Callers pass encoded commands to it through a queue, in the order in which
//! their futures are first polled. It writes waiting commands in batches, reads at the same time, and delivers each reply to
//! the oldest unanswered request. A caller that finds nothing in flight writes its command directly. A call that is dropped
//! keeps its place in the order of replies. When the connection is lost, the same task reconnects, and the queue outlives both connections.
#![forbid(unsafe_code)]

#[cfg(feature = "blocking")]
pub mod blocking;
mod bulk;
mod cache;
mod client;
pub mod cluster;
mod command;
mod config;
mod dedicated;
mod dialer;
mod direct;
mod endpoint;
mod error;
mod events;
mod into_endpoint;
mod link;
mod pipeline;
pub mod pubsub;
#[cfg(feature = "redis")]
mod redis;
mod runtime;
mod scan;
mod script;
mod sentinel;
mod server;
mod spans;
mod stats;
mod streaming;
mod transaction;

// `tests/submit_model.rs` compiles the queue a second time, with its own.
use valkey_rdma_transport::sync;

pub use bulk::{NotDirect, Placed, Way};
pub use cache::{Cache, CacheStats, Invalidation, Invalidations};
pub use client::Client;
pub use command::{Command, IntoCommand, RefusedCommand, ToArg};
// For the gateway, which must know the same of a command.
#[doc(hidden)]
pub use command::{CommandClass, SubscriptionKind};
pub use config::{Backoff, Config, Credentials};
pub use dedicated::Dedicated;
pub use dialer::{ByteStream, Dialer};
pub use endpoint::{Endpoint, EndpointError, RdmaPort, Sentinels, Transport};
pub use error::{
    AbortedTransaction, ClusterError, ConnectCause, ConnectError, Error, FailedCommand, Fate, LostCause,
    LostConnection, PasswordError, TimedOut,
};
pub use events::{ConnectionEvent, ConnectionEvents};
pub use into_endpoint::IntoEndpoint;
pub use link::{ConnectStep, StepFound, StepReport};
#[doc(hidden)]
pub use link::{Looks, is_elsewhere, read_password_file};
pub use pipeline::Pipeline;
pub use pubsub::Subscriber;
pub use scan::{ElementScan, Scan};
pub use script::{Invocation, Script};
pub use stats::{ConnectionInfo, ConnectionStatus, Counters, Purpose, State};
pub use streaming::{Fetched, ValueReader, ValueWriter};
pub use transaction::{Transaction, Watch};

pub use valkey_rdma_resp::{
    Fields, FromValue, Protocol, RespError, ServerError, ServerErrorKind, UnexpectedReply, Value,
};
pub use valkey_rdma_transport as transport;
pub use valkey_rdma_transport::tls::{ClientTls, TlsError, TlsInfo, Verify};
pub use valkey_rdma_transport::{
    BufferPool, DirectMemory, DirectMemoryError, DirectSlice, Polling, PoolBuffer, SendRegion, UnusablePool,
};
