//! The byte stream for programs without async: [`Stream`] and [`Listener`] as `std::net` has them.
//!
//! Reads and writes run on the calling thread. A thread that reads or writes while no other one does takes the devices' events itself,
//! for all streams of the process. Otherwise one background thread does, also while there are nonblocking streams or bridged
//! descriptors. Do not call these functions from async tasks, which they would block.
//!
//! ```
//! use std::io::{Read, Write};
//! use valkey_rdma_transport::blocking::{Listener, Stream};
//! use valkey_rdma_transport::{Config, DeviceKind};
//!
//! # fn main() -> std::io::Result<()> {
//! let any = ([127, 0, 0, 1], 0).into();
//! let listener = Listener::bind(DeviceKind::Emulated, any, &Config::default())?;
//! let addr = listener.local_addr();
//! let echo = std::thread::spawn(move || {
//!     let mut stream = listener.accept()?;
//!     std::io::copy(&mut stream.try_clone()?, &mut stream)
//! });
//!
//! let mut stream = Stream::connect(DeviceKind::Emulated, addr, &Config::default())?;
//! stream.write_all(b"hello")?;
//! let mut answer = [0; 5];
//! stream.read_exact(&mut answer)?;
//! assert_eq!(&answer, b"hello");
//! drop(stream);
//! assert_eq!(echo.join().expect("no panic")?, 5);
//! # Ok(())
//! # }
//! ```

mod listener;
mod reactor;
mod readiness;
mod stream;
mod turns;

pub use self::listener::{Incoming, Listener};
pub use self::reactor::Reactor;
pub use self::stream::Stream;
#[cfg(target_os = "linux")]
pub(crate) use self::stream::as_io_error;
