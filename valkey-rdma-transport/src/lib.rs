//! Async byte streams over RDMA, for tokio: [`Stream`] and [`Listener`] are used like `TcpStream` and `TcpListener`, and the bytes go
//! from one machine's memory to the other's without the kernels. Any protocol runs on them: HTTP, your own, or Valkey's, whose RDMA
//! transport this is.
//!
//! This example needs no adapter. With [`DeviceKind::Verbs`] and addresses of RDMA interfaces, it uses one.
//!
//! ```
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use valkey_rdma_transport::{Config, DeviceKind, Listener, Stream};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let any = "127.0.0.1:0".parse()?;
//! let mut listener = Listener::bind(DeviceKind::Emulated, any, &Config::default()).await?;
//! let addr = listener.local_addr();
//!
//! let echo = tokio::spawn(async move {
//!     let (mut reader, mut writer) = tokio::io::split(listener.accept().await?);
//!     tokio::io::copy(&mut reader, &mut writer).await?;
//!     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
//! });
//!
//! let mut stream = Stream::connect(DeviceKind::Emulated, addr, &Config::default()).await?;
//! stream.write_all(b"hello").await?;
//! let mut answer = [0; 5];
//! stream.read_exact(&mut answer).await?;
//! assert_eq!(&answer, b"hello");
//! assert_eq!(stream.stats().device.doorbells, 2); // our Register, and one write
//! drop(stream);
//! # echo.await?.map_err(|error| error as Box<dyn std::error::Error>)?;
//! # Ok(())
//! # }
//! ```
//!
//! The crate's `examples/` have this echo, HTTP by hyper, and RDMA itself step by step.
//!
//! # What is Valkey's in it
//! The wire, so both ends have to speak it: this crate, or a Valkey server or client with RDMA. Each side opens windows of its memory,
//! and announces them in control messages of 32 bytes. The other side fills them by RDMA WRITE with immediate. The accepting side
//! sends a [keepalive](Config::keepalive) every 3 s. The crate has no parser and no commands.
//!
//! # Guarantees
//! - Every byte arrives once and in order, or reads and writes return an error; [`Stream::close_error`] has the cause.
//! - A write waits while the [send buffer](Config::send_buffer) is full, and the peer cannot send more than its
//!   [window](Config::rx_size). A slow reader stops its peer.
//! - [`Stream`] says what is cancel safe, what `shutdown` and drop do, and why there is no half-close.
//! - A peer that misbehaves ends its own connection with an error. It reaches the windows of that connection only.
//!
//! # Memory
//! RDMA memory is pinned, and `ulimit -l` (memlock) limits it. A connection pins 2.1 MiB by default, 3.1 MiB while large writes pass, and
//! 225 KiB with [`Config::buffers_at_most`]`(65_536)`. [`Config::pinned_bytes`] computes it, [`Stats::pinned_bytes`] has the present
//! number, and [`Config::max_pinned_bytes`] limits a listener.
//!
//! # Limits
//! Kernel verbs and [`bridge`] need Linux, and devices with reliable connections (RC) and WRITE with immediate: not Amazon EFA, and not
//! iWARP. Without default features, the crate also compiles for macOS: byte streams over TCP, and the emulated device. No test of ours
//! has run there.
//!
//! # Below and beside the stream
//! Below lies a device contract with two implementations: kernel verbs, and the [emulated](DeviceKind::Emulated) device in software that
//! runs anywhere. Nothing above the device can tell which one it has, except by [asking](Stream::info). How a connection waits for its
//! device is a [choice](Polling) per connection. [`raw`] has queue pairs and registered memory, [`blocking`] the stream without async.
//!
//! Two sides of this project can move large values without the stream: a client [exposes](Stream::expose) [`DirectMemory`], and its
//! server writes and reads it with [`Direct`].
//!
//! # Cargo features
//! | feature | what it adds |
//! |---|---|
//! | `verbs` (default) | RDMA adapters and soft-RoCE through the kernel's verbs. Needs nothing to build: libibverbs and librdmacm are loaded at the first use |
//! | `rdma-sys` | the same libraries, linked at build time |
//! | `emulated` | the emulated device, for tests and trials: in a process, or between processes, with seeded delays and faults. Its speed says nothing about RDMA's |
//! | `tls` | [TLS](tls) 1.2 and 1.3 over any of the streams: rustls with ring, which needs a C compiler to build |
#![deny(unsafe_code)]
#![cfg_attr(
    not(any(feature = "verbs", feature = "emulated")),
    expect(
        dead_code,
        unused_variables,
        unused_imports,
        reason = "without a device, nothing uses the shared parts"
    )
)]

#[cfg(not(unix))]
compile_error!("this crate needs Linux, or, without its default features, macOS");
#[cfg(all(unix, feature = "verbs", not(target_os = "linux")))]
compile_error!(
    "RDMA needs Linux. On macOS there is TCP only: write `default-features = false` for each crate of this project that \
     you depend on."
);

pub mod address;
mod any_stream;
pub mod blocking;
#[cfg(target_os = "linux")]
pub mod bridge;
mod buffer_pool;
mod config;
#[doc(hidden)]
pub mod device;
mod direct;
#[cfg(feature = "emulated")]
pub mod emulated;
mod error;
mod limiter;
mod listener;
mod password_file;
mod polling;
mod process;
pub mod raw;
mod send_memory;
mod stats;
mod stream;
#[doc(hidden)]
pub mod sync;
pub mod tls;
#[cfg(unix)]
mod unix_socket;
#[cfg(feature = "verbs")]
mod verbs;

#[cfg(feature = "tls")]
pub use any_stream::TlsStream;
pub use any_stream::{AnyStream, Duplex};
pub use buffer_pool::{BufferPool, PoolBuffer, UnusablePool};
pub use config::Config;
#[doc(hidden)]
pub use config::{UrlOptions, percent_decode};
pub use device::{DeviceFault, DeviceInfo, DeviceKind, Obstacle, SharedCq, SharedCqError, UnknownName};
pub use direct::{DirectMemory, DirectMemoryError, DirectSlice, Exposed, ForeignBytes, RemoteRange};
pub use error::{GidProblem, RejectReason, SystemError, TransportError, is_out_of_descriptors};
pub use listener::{Listener, Request};
#[doc(hidden)]
pub use password_file::password_in_file;
pub use polling::Polling;
#[doc(hidden)]
pub use process::runtime_without_signals;
#[doc(hidden)]
pub use send_memory::KnownAtFork;
pub use send_memory::SendRegion;
pub use stats::{DeviceCounters, Info, ListenerStats, Stats};
pub use stream::{Direct, Monitor, Stream};
#[cfg(unix)]
pub use unix_socket::UnixSocket;
pub use valkey_rdma_proto::{CloseReason, Counters, FeatureSet, ProtocolError};

/// The example of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
