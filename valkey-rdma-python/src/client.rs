//! `Client`: calls that wait, from any number of threads.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use valkey_rdma_client::{Backoff, Command};
use valkey_rdma_transport::sync::lock;

use crate::connected::Connected;
use crate::engine::Engine;
use crate::errors::Failure;
use crate::local::Local;
use crate::options::Options;
use crate::options::Target;
use crate::pubsub::Subscriber;
use crate::registration::Registration;
use crate::runtime::{self, Calls};

use crate::transfer::Fit;
use crate::{arguments, batch, describe, memory, reply};

/// A client whose calls wait for their replies, with Python's lock released. Any number of threads may share it.
///
/// Small commands of all threads share ``connections`` connections. Buffers go over up to ``lanes`` further ones, made when needed.
///
/// A client belongs to the process that made it: after a fork, calls in the child raise ``ForkedError``.
///
/// A subclass connects with ``super().__init__(url)``, and takes what arguments it likes.
#[pyclass(frozen, module = "valkey_rdma", subclass, weakref)]
#[derive(Default)]
pub(crate) struct Client {
    shared: Connected<Shared>,
}

struct Shared {
    engine: Local<Arc<Engine>>,
    handle: Handle,
    calls: Local<Calls>,
}

impl Client {
    pub(crate) fn connect(&self, py: Python<'_>, options: Options, target: Target) -> PyResult<()> {
        self.shared.check_new()?;
        let connect = options.connect(target)?;
        let (handle, calls) = (runtime::handle(py)?, runtime::calls(py)?);
        let engine = runtime::wait_in(py, &calls, connect)?.map_err(|failure| failure.raise(py))?;
        self.shared.set(Shared { engine: Local::new(engine), handle, calls: Local::new(calls) })
    }

    /// The engine.
    ///
    /// # Errors
    /// If the client is closed or of another process, or was never connected.
    fn engine(&self, py: Python<'_>) -> PyResult<Arc<Engine>> {
        memory::release_all(py);
        let engine = self.shared.get()?.engine.get(py)?;
        if engine.is_closed() {
            return Err(Failure::Closed.raise(py));
        }
        Ok(engine.clone())
    }

    /// Waits for an operation, then releases the memory of all that have ended.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        operation: impl Future<Output = Result<T, Failure>> + Send,
    ) -> PyResult<T> {
        let calls = self.shared.get()?.calls.get(py)?;
        let outcome = runtime::wait_in(py, calls, operation);
        memory::release_all(py);
        outcome?.map_err(|failure| failure.raise(py))
    }

    /// As [`wait`](Self::wait), for an operation on `bytes` of the program's memory, which nothing uses once this returns.
    fn transfer<T: Send, F: Future<Output = Result<T, Failure>> + Send>(
        &self,
        py: Python<'_>,
        bytes: usize,
        operation: impl FnOnce(oneshot::Receiver<()>) -> F,
    ) -> PyResult<T> {
        let outcome = runtime::wait_until_stopped(py, &self.shared.get()?.handle, bytes, operation);
        memory::release_all(py);
        outcome?.map_err(|failure| failure.raise(py))
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(
        signature = (*_arguments, **_keywords),
        text_signature = "(url, *, connections=1, lanes=4, timeout=30.0, offline_timeout=10.0, reconnect=True, retries=3, name=None)"
    )]
    fn new(_arguments: &Bound<'_, PyTuple>, _keywords: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    #[pyo3(signature = (url, *, connections=1, lanes=4, timeout=Some(30.0), offline_timeout=Some(10.0), reconnect=true, retries=3, name=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn __init__(
        &self,
        py: Python<'_>,
        url: String,
        connections: i64,
        lanes: i64,
        timeout: Option<f64>,
        offline_timeout: Option<f64>,
        reconnect: bool,
        retries: i64,
        name: Option<String>,
    ) -> PyResult<()> {
        let reconnect = reconnect.then(Backoff::default);
        let options = Options { connections, lanes, timeout, offline_timeout, reconnect, retries, name };
        self.connect(py, options, Target::One(url))
    }

    /// Sends a command, given as its name and arguments, and returns its reply.
    ///
    /// Small commands of all threads share its connection, and wait behind a large value until all of it has arrived or was sent: use
    /// ``get_into`` and ``set_from`` for those.
    #[pyo3(signature = (*arguments, timeout=None))]
    fn command<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let engine = self.engine(py)?;
        let command = arguments::command(arguments, arguments::limit(timeout)?)?;
        let value = self.wait(py, engine.execute(command))?;
        reply::to_python(py, value)
    }

    /// Sends a blocking command, such as BLPOP, on a connection of its own.
    #[pyo3(signature = (*arguments, timeout=None))]
    fn blocking_command<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let engine = self.engine(py)?;
        let arguments = arguments.iter().map(|argument| arguments::key(&argument));
        let arguments = arguments.collect::<PyResult<Vec<_>>>()?;
        let limit = arguments::limit(timeout)?;
        let value = self.wait(py, engine.block(arguments, limit))?;
        reply::to_python(py, value)
    }

    /// Begins a pipeline: commands that are sent together.
    fn pipeline(slf: Py<Self>) -> Pipeline {
        Pipeline { client: slf, commands: Mutex::default() }
    }

    /// Reads a value into a writable buffer, without a copy in between.
    ///
    /// Returns the length of the value, or None if the key does not exist; the buffer is untouched then, unless a connection was lost
    /// meanwhile.
    #[pyo3(signature = (key, buffer, *, timeout=None))]
    fn get_into(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        buffer: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let engine = self.engine(py)?;
        let limit = arguments::limit(timeout)?;
        let load = batch::load(key, buffer)?;
        let room = load.memory.len();
        let fetched = self.transfer(py, room, |stop| engine.load(vec![load], Fit::Within, limit, stop))?;
        batch::length(py, fetched, room)
    }

    /// Reads many values, each into its buffer. Returns their lengths, with None for each key that does not exist.
    #[pyo3(signature = (keys, buffers, *, timeout=None))]
    fn mget_into(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        buffers: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let engine = self.engine(py)?;
        let limit = arguments::limit(timeout)?;
        let loads = batch::loads(keys, buffers)?;
        let rooms: Vec<_> = loads.iter().map(|load| load.memory.len()).collect();
        let fetched =
            self.transfer(py, rooms.iter().sum(), |stop| engine.load(loads, Fit::Within, limit, stop))?;
        batch::lengths(py, fetched, &rooms)
    }

    /// Sets a value from a buffer, without a copy in between. ``ttl`` is in seconds.
    #[pyo3(signature = (key, buffer, *, ttl=None, timeout=None))]
    fn set_from(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        buffer: &Bound<'_, PyAny>,
        ttl: Option<f64>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let engine = self.engine(py)?;
        let (ttl, limit) = (arguments::time_to_live(ttl)?, arguments::limit(timeout)?);
        let stores = vec![batch::store(key, buffer)?];
        let bytes = stores.iter().map(|store| store.value.len()).sum();
        let stored = self.transfer(py, bytes, |stop| engine.store(stores, ttl, limit, stop))?;
        batch::stored(py, stored)
    }

    /// Sets many values, each from its buffer.
    #[pyo3(signature = (keys, buffers, *, ttl=None, timeout=None))]
    fn mset_from(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        buffers: &Bound<'_, PyAny>,
        ttl: Option<f64>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let engine = self.engine(py)?;
        let (ttl, limit) = (arguments::time_to_live(ttl)?, arguments::limit(timeout)?);
        let stores = batch::stores(keys, buffers)?;
        let bytes = stores.iter().map(|store| store.value.len()).sum();
        let stored = self.transfer(py, bytes, |stop| engine.store(stores, ttl, limit, stop))?;
        batch::stored(py, stored)
    }

    /// Whether each key exists.
    #[pyo3(signature = (keys, *, timeout=None))]
    fn exists_many(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Vec<bool>> {
        let engine = self.engine(py)?;
        let limit = arguments::limit(timeout)?;
        self.wait(py, engine.count_all("EXISTS", arguments::keys(keys)?, limit))
    }

    /// Deletes keys; the server frees their memory in the background. Returns whether each of them existed.
    #[pyo3(signature = (keys, *, timeout=None))]
    fn delete_many(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Vec<bool>> {
        let engine = self.engine(py)?;
        let limit = arguments::limit(timeout)?;
        self.wait(py, engine.count_all("UNLINK", arguments::keys(keys)?, limit))
    }

    /// Registers memory, which ``set_from`` and ``mset_from`` then send from without a copy over RDMA. Each connection registers it with
    /// the device when it first sends from it, which pins it. Over TCP this changes nothing.
    fn register(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<Registration> {
        self.engine(py)?.registrations.register(buffer)
    }

    /// Opens a connection for subscriptions.
    fn subscriber(&self, py: Python<'_>) -> PyResult<Subscriber> {
        let engine = self.engine(py)?;
        // Background threads take its messages, which also come while no thread waits.
        let handle = &self.shared.get()?.handle;
        let opened = runtime::wait(py, handle, async move { engine.client.subscriber().await })?;
        let opened = opened.map_err(|error| Failure::from(error).raise(py))?;
        Ok(Subscriber::new(opened, handle.clone()))
    }

    /// Describes the connection: transport, device, windows; and why it is not RDMA, if it should be. Of a cluster: its nodes,
    /// and the connection to each.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        describe::info(py, &self.engine(py)?.client)
    }

    /// Counters of the client, and of each of its connections. Of a cluster also redirections, and the node of each connection.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        describe::stats(py, &*self.engine(py)?)
    }

    /// Closes all connections, after the replies to what was sent, which it waits for up to 3 s. No buffer is in use when it returns.
    /// Calls made later raise ``ClosedError``, and so do calls that are cut off. A signal handler that closes the client during a call
    /// does not wait: the call raises when the handler has returned.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(Shared { engine, handle, .. }) = self.shared.if_any() else { return Ok(()) };
        match engine.here() {
            // A signal handler: the call that it interrupts ends when it returns, and not before.
            Some(engine) if runtime::is_waiting() => {
                engine.clone().end(handle);
                Ok(())
            }
            Some(engine) if !runtime::is_exiting() => self.wait(py, engine.clone().close()),
            _ => Ok(()),
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let Some(shared) = self.shared.if_any() else {
            return "<valkey_rdma.Client not connected>".to_owned();
        };
        match shared.engine.here() {
            Some(engine) => format!("<valkey_rdma.{engine}>"),
            None => "<valkey_rdma.Client of another process>".to_owned(),
        }
    }
}

/// Commands that are sent together, without waiting for replies in between.
#[pyclass(frozen, module = "valkey_rdma", weakref)]
pub(crate) struct Pipeline {
    client: Py<Client>,
    commands: Mutex<Vec<Command>>,
}

#[pymethods]
impl Pipeline {
    /// Adds a command, given as its name and arguments.
    #[pyo3(signature = (*arguments))]
    fn command<'py>(slf: &Bound<'py, Self>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, Self>> {
        let command = arguments::command(arguments, None)?;
        lock(&slf.get().commands).push(command);
        Ok(slf.clone())
    }

    /// Sends the commands and returns all replies. Raises the first error reply, or with ``raise_on_error=False`` returns it in
    /// its place. The pipeline is empty afterwards.
    #[pyo3(signature = (*, raise_on_error=true, timeout=None))]
    fn execute(&self, py: Python<'_>, raise_on_error: bool, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let client = self.client.get();
        let engine = client.engine(py)?;
        let limit = arguments::limit(timeout)?;
        let commands = std::mem::take(&mut *lock(&self.commands));
        let replies = client.wait(py, engine.pipeline(commands, limit))?;
        reply::list_to_python(py, replies, raise_on_error)
    }

    fn __len__(&self) -> usize {
        lock(&self.commands).len()
    }
}
