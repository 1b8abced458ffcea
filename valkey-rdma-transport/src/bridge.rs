//! RDMA connections as file descriptors, for programs that know sockets only: in C, in Python, in any language.
//!
//! [`connect`] and [`accept`] return one end of a Unix socket pair. The process's background thread copies between the other end and
//! the RDMA connection. All that sockets can do works: blocking and non-blocking calls, `poll`, deadlines, end of file,
//! `shutdown`. Each byte is copied twice more than by a [`Stream`](crate::blocking::Stream), and each message takes two more
//! system calls: this is for reach, not for speed.
//!
//! The protocol has no half-close. When a program shuts down writing and goes on reading, the answers to its last requests have
//! [`Config::linger`] to arrive.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::blocking::{Listener, as_io_error, handle, wait};
use crate::config::Config;
use crate::device::DeviceKind;
use crate::stream::Stream;

/// Connects to a server, and returns a socket that stands for the connection.
///
/// # Errors
/// As for [`Stream::connect`]; the [`TransportError`](crate::TransportError) is the source. And those of making a socket pair.
pub fn connect(kind: DeviceKind, peer: SocketAddr, config: &Config) -> io::Result<OwnedFd> {
    over(block_on(Stream::connect(kind, peer, config))?.map_err(as_io_error)?)
}

/// Waits for the next connection of a listener, and returns a socket that stands for it.
///
/// # Errors
/// As for [`Listener::accept`], and those of making a socket pair.
pub fn accept(listener: &Listener) -> io::Result<OwnedFd> {
    over(listener.accept_async()?)
}

/// Waits for a future on this thread. What it starts runs on the background thread: to make streams for [`over`].
///
/// # Errors
/// If the background thread cannot be started.
pub fn block_on<T>(future: impl Future<Output = T>) -> io::Result<T> {
    Ok(wait(&handle()?, None, future).expect("without a deadline it waits"))
}

/// Puts any byte stream behind a socket.
///
/// # Errors
/// Those of making a socket pair.
pub fn over<S>(stream: S) -> io::Result<OwnedFd>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (near, far) = UnixStream::pair()?;
    far.set_nonblocking(true)?;
    handle()?.spawn(async move {
        if let Err(error) = pump(far, stream).await {
            tracing::debug!(%error, "a bridged connection has ended");
        }
    });
    Ok(near.into())
}

async fn pump(socket: UnixStream, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let mut socket = tokio::net::UnixStream::from_std(socket)?;
    let copied = tokio::io::copy_bidirectional_with_sizes(&mut socket, &mut stream, BUFFER, BUFFER).await;
    // What was written is delivered also where the program has closed the socket while answers were coming.
    stream.shutdown().await?;
    copied.map(drop)
}

/// Bytes copied at once.
const BUFFER: usize = 64 << 10;
