//! Devices and the async byte stream of Valkey over RDMA.
//!
//! [`Stream`] is to an RDMA connection what `TcpStream` is to TCP; [`Listener`] accepts them. Below lies a
//! device contract with two implementations: kernel verbs, and an emulated device in software that
//! runs anywhere (cargo feature `emulated`). Nothing above the device can tell which one it has, except by [asking](Stream::info). How a connection
//! waits for its device is a [choice](Polling) per connection.
//!
//! Two sides of this project can move large values without the stream: a client [exposes](Stream::expose) [`DirectMemory`], and its
//! server writes and reads it with [`Direct`].
//!
//! Kernel verbs and [`bridge`] need Linux. Without default features, the crate also compiles for macOS: byte streams over TCP,
//! and the emulated device. No test of ours has run there.
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
pub use send_memory::SendRegion;
pub use stats::{DeviceCounters, Info, ListenerStats, Stats};
pub use stream::{Direct, Monitor, Stream};
pub use valkey_rdma_proto::{CloseReason, Counters, FeatureSet, ProtocolError};

/// The example of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
