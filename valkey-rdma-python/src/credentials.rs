//! [`provider`]: the program's function that supplies user and password, called on a thread of Python's.
//!
//! A connection asks on a background thread, which never calls Python. It leaves its request here, and writes one byte to a socket. A thread
//! of Python's (`_credentials.py`) waits at the other end of the socket, and calls [`CredentialRequests::answer`] for each byte. The client ends that
//! thread by the end of the socket.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use tokio::sync::oneshot;
use valkey_rdma_client::{Config, Credentials};
use valkey_rdma_transport::sync::lock;

use crate::python::Any;

/// A connection that waits for its credentials, or for the text of what went wrong.
type Request = oneshot::Sender<Result<Credentials, String>>;

/// Requests of the connections of one client, in order.
#[pyclass(frozen, module = "valkey_rdma")]
#[derive(Clone, Default)]
pub(crate) struct CredentialRequests(Arc<Mutex<VecDeque<Request>>>);

#[pymethods]
impl CredentialRequests {
    /// Calls the provider for the oldest request whose connection still waits. An exception of the provider fails that connection.
    fn answer(&self, provider: &Any<'_>) {
        // The time of a connection may be up, and its byte may not have fitted into the socket.
        let mut requests = std::iter::from_fn(|| lock(&self.0).pop_front());
        let Some(request) = requests.find(|request| !request.is_closed()) else { return };
        let supplied = provider.call0().and_then(|supplied| credentials(&supplied));
        // A connection whose time is up no longer waits.
        let _ = request.send(supplied.map_err(|error| error.to_string()));
    }
}

/// What a provider returns: a password, or `(password,)`, or `(user, password)`.
fn credentials(supplied: &Any<'_>) -> PyResult<Credentials> {
    if let Ok(password) = supplied.cast::<PyString>() {
        return Ok(Credentials::new("", &*password.to_cow()?));
    }
    if let Ok((password,)) = supplied.extract::<(String,)>() {
        return Ok(Credentials::new("", password));
    }
    let pair = supplied.extract::<(Option<String>, String)>();
    let (user, password) = pair.map_err(|_| {
        let what =
            supplied.get_type().name().map_or_else(|_| "something else".to_owned(), |name| name.to_string());
        PyTypeError::new_err(format!("credentials must return (user, password) or a password, not {what}"))
    })?;
    Ok(Credentials::new(user.unwrap_or_default(), password))
}

/// The thread that calls a provider: the near end of its socket, and what waits.
pub(crate) struct Provider {
    requests: CredentialRequests,
    wakes: UnixStream,
}

impl Provider {
    async fn ask(self: Arc<Self>) -> Result<Credentials, String> {
        let (request, answer) = oneshot::channel();
        lock(&self.requests.0).push_back(request);
        let asked = (&self.wakes).write_all(&[0]).map_err(|error| error.to_string());
        asked?;
        answer.await.unwrap_or_else(|_| Err("the thread that calls it has ended".to_owned()))
    }

    /// Ends the thread, which may be the last to hold the program's provider, and with it an object that has the client. Call it when no
    /// more connections are made.
    pub(crate) fn end(&self) {
        let _ = self.wakes.shutdown(Shutdown::Both);
    }
}

/// Ends the thread, also if a forked child holds this end too.
impl Drop for Provider {
    fn drop(&mut self) {
        self.end();
    }
}

/// Takes user and password from `provider`, a function or an object with `get_credentials`.
///
/// # Errors
/// TypeError for another object. OSError if no socket or thread can be made.
pub(crate) fn provider(config: Config, provider: &Any<'_>) -> PyResult<(Config, Arc<Provider>)> {
    let py = provider.py();
    let function = match provider.getattr_opt("get_credentials")? {
        Some(method) => method,
        None if provider.is_callable() => provider.clone(),
        None => {
            return Err(PyTypeError::new_err("credentials must be a function, or have get_credentials()"));
        }
    };
    let (near, far) = UnixStream::pair()?;
    near.set_nonblocking(true)?;
    let requests = CredentialRequests::default();
    let provider = Arc::new(Provider { requests: requests.clone(), wakes: near });
    let start = py.import("valkey_rdma._credentials")?.getattr("start")?;
    start.call1((far.into_raw_fd(), requests, function))?;
    let asked = provider.clone();
    let config = config.credentials(move || {
        let asked = asked.clone();
        async move { asked.ask().await.map_err(io::Error::other) }
    });
    Ok((config, provider))
}
