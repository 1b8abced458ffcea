//! `url_options`, `check_url`, `connect_socket` and its form for asyncio: a connection as a file descriptor, for clients that speak RESP themselves.

use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use valkey_rdma_client::{ByteStream, Config, Dialer, Endpoint, read_password_file};
use valkey_rdma_transport::bridge::pump;

use crate::errors::{Failure, classes};
use crate::event_loop::{Cancelled, EndOnDrop, EventLoop};
use crate::python::Answer;
use crate::runtime;

/// The names of the options that the URL of a server can have.
#[pyfunction]
pub(crate) fn url_options() -> Vec<&'static str> {
    Endpoint::option_names().collect()
}

/// The password in a file that holds nothing else. Raises ConnectError if there is none.
#[pyfunction]
pub(crate) fn password_in_file(py: Python<'_>, path: &str) -> PyResult<String> {
    read_password_file(Path::new(path)).map_err(|error| {
        let raised =
            classes(py).and_then(|classes| classes.getattr("ConnectError")?.call1((error.to_string(),)));
        raised.map_or_else(|error| error, PyErr::from_value)
    })
}

/// Raises UrlError if the URL of a server is invalid. Connects to nothing.
#[pyfunction]
pub(crate) fn check_url(py: Python<'_>, url: &str) -> PyResult<()> {
    let checked = Dialer::new(url, &Config::default()).map(drop);
    checked.map_err(|error| Failure::from(error).raise(py))
}

/// Connects to the server of a URL and returns one end of a Unix socket pair, which stands for the connection: its bytes are the
/// server's. Nothing is logged in. The caller closes it.
#[pyfunction]
pub(crate) fn connect_socket(py: Python<'_>, url: String) -> PyResult<i32> {
    let handle = runtime::handle(py)?;
    let connected = runtime::wait(py, &handle, connect(url))?.map_err(|failure| failure.raise(py))?;
    Ok(connected?.into_raw_fd())
}

/// As ``connect_socket``, for asyncio: returns a future of the descriptor. Cancelling it ends the attempt.
#[pyfunction]
#[pyo3(signature = (url: "str") -> "Future[int]")]
pub(crate) fn connect_socket_async(py: Python<'_>, url: String) -> Answer<'_> {
    let handle = runtime::handle(py)?;
    let event_loop = EventLoop::running(py)?;
    let only_call = EndOnDrop::new(&event_loop);
    let event_loop = event_loop.bind(py);
    EventLoop::start_in_background(
        event_loop,
        &handle,
        Cancelled::Stops,
        connect(url),
        move |of, connected| {
            drop(only_call);
            connected?.into_raw_fd().into_py_any(of.py())
        },
    )
}

/// Connects, and begins to copy between the connection and a socket pair, of which it returns the near end.
async fn connect(url: String) -> Result<io::Result<OwnedFd>, Failure> {
    let stream = Dialer::new(url.as_str(), &Config::default())?.dial().await?;
    Ok(copying(stream))
}

fn copying(stream: ByteStream) -> io::Result<OwnedFd> {
    let (near, far) = UnixStream::pair()?;
    // The copying runs on this module's own threads, which a forked child has of its own.
    tokio::spawn(async move {
        // An error ends both sides, which is what the caller sees.
        let _ = pump(far, stream).await;
    });
    Ok(near.into())
}
