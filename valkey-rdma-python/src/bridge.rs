//! `connect_socket`: a connection as a file descriptor, for clients that speak RESP themselves.

use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use tokio::io::{AsyncWriteExt, copy_bidirectional_with_sizes};
use valkey_rdma_client::{ByteStream, Config, Dialer, Error};

use crate::errors::Failure;
use crate::runtime;

/// Connects to the server of a URL and returns one end of a Unix socket pair, which stands for the connection: its bytes are the
/// server's. Nothing is logged in. The caller closes it.
#[pyfunction]
pub(crate) fn connect_socket(py: Python<'_>, url: String) -> PyResult<i32> {
    let handle = runtime::handle(py)?;
    let dial = async {
        let dialer = Dialer::new(url.as_str(), &Config::default())?;
        dialer.dial().await
    };
    let dialed: Result<ByteStream, Error> = runtime::wait(py, &handle, dial)?;
    let stream = dialed.map_err(|error| Failure::from(error).raise(py))?;
    let (near, far) = UnixStream::pair().map_err(PyOSError::new_err)?;
    far.set_nonblocking(true).map_err(PyOSError::new_err)?;
    // The copying runs on this module's own threads, which a forked child has of its own.
    handle.spawn(async move {
        // An error ends both sides, which is what the caller sees.
        let _ = pump(far, stream).await;
    });
    Ok(near.into_raw_fd())
}

async fn pump(socket: UnixStream, mut stream: ByteStream) -> std::io::Result<()> {
    let mut socket = tokio::net::UnixStream::from_std(socket)?;
    let copied = copy_bidirectional_with_sizes(&mut socket, &mut stream, BUFFER, BUFFER).await;
    stream.shutdown().await?;
    copied.map(drop)
}

/// Bytes copied at once.
const BUFFER: usize = 64 << 10;
