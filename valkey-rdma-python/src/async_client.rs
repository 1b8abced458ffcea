//! `AsyncClient`: the client for asyncio.

use std::sync::{Arc, Mutex};

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use valkey_rdma_client::{Backoff, Command};
use valkey_rdma_transport::sync::lock;

use crate::async_subscriber::AsyncSubscriber;
use crate::engine::Engine;
use crate::errors::Failure;
use crate::event_loop::{Cancelled, EndOnDrop, EventLoop};
use crate::local::Local;
use crate::options::Options;
use crate::options::Target;
use crate::registration::Registration;
use crate::runtime;

use crate::transfer::Fit;
use crate::{arguments, batch, describe, memory, reply};

/// A client for asyncio: ``client = await AsyncClient.connect(url)``. Its methods start their operation at once and return a future.
///
/// Commands and pipelines run in the order of the calls, without an await between them: on its one connection, as long as that is not
/// lost. There is no order between ``connections`` if there are several, between the nodes of a cluster or
/// before they were connected to, and between these calls and those that have connections of their own: with buffers, ``blocking_command``,
/// ``subscriber``, and commands such as ``SCRIPT KILL``, which must not wait behind the script.
///
/// It belongs to the loop that was running in ``connect``. Cancelled calls with buffers, and cancelled blocking commands, stop, and
/// close their connection: when the await returns, the buffers are free. A value that was being set may be set. Other cancelled calls
/// go on, and their replies are dropped.
#[pyclass(frozen, module = "valkey_rdma", subclass, weakref)]
pub(crate) struct AsyncClient {
    engine: Local<Arc<Engine>>,
    event_loop: Py<EventLoop>,
    handle: Handle,
}

impl AsyncClient {
    /// Connects. The future's result is what `finish` makes of the client.
    pub(crate) fn connecting<'py>(
        py: Python<'py>,
        options: Options,
        target: Target,
        finish: impl FnOnce(Self, Python<'_>) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>> {
        let connect = options.connect(target)?;
        let handle = runtime::handle(py)?;
        let event_loop = EventLoop::running(py)?;
        let (ours, unless_made) = (handle.clone(), EndOnDrop::new(&event_loop));
        EventLoop::start_in_background(
            event_loop.bind(py),
            &handle,
            Cancelled::Stops,
            connect,
            move |of, engine| {
                unless_made.forget();
                let event_loop = of.clone().unbind();
                finish(Self { engine: Local::new(engine), event_loop, handle: ours }, of.py())
            },
        )
    }

    fn engine(&self, py: Python<'_>) -> PyResult<Arc<Engine>> {
        memory::release_all(py);
        let engine = self.engine.get(py)?;
        if engine.is_closed() {
            return Err(Failure::Closed.raise(py));
        }
        Ok(engine.clone())
    }

    fn start<'py, T: Send + 'static>(
        &self,
        py: Python<'py>,
        operation: impl Future<Output = Result<T, Failure>> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>> {
        EventLoop::start(self.event_loop.bind(py), &self.handle, Cancelled::GoesOn, operation, convert)
    }

    /// As [`start`](Self::start), for an operation on memory of the program.
    fn transfer<'py, T: Send + 'static, F>(
        &self,
        py: Python<'py>,
        operation: impl FnOnce(oneshot::Receiver<()>) -> F,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>>
    where
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        // Closing waits for an operation from here on, not from when its task first runs: it has the program's memory already.
        let begun = self.engine.here().map(|engine| engine.begin());
        let operation = move |stop| {
            let work = operation(stop);
            async move {
                let outcome = work.await;
                drop(begun);
                outcome
            }
        };
        EventLoop::start_transfer(self.event_loop.bind(py), &self.handle, operation, convert)
    }
}

#[pymethods]
impl AsyncClient {
    /// Connects. The arguments are those of ``Client``.
    #[staticmethod]
    #[pyo3(
        signature = (url, *, connections=1, lanes=4, timeout=Some(30.0), offline_timeout=Some(10.0), reconnect=true, retries=3, name=None),
        text_signature = "(url, *, connections=1, lanes=4, timeout=30.0, offline_timeout=10.0, reconnect=True, retries=3, name=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn connect<'py>(
        py: Python<'py>,
        url: String,
        connections: i64,
        lanes: i64,
        timeout: Option<f64>,
        offline_timeout: Option<f64>,
        reconnect: bool,
        retries: i64,
        name: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reconnect = reconnect.then(Backoff::default);
        let options = Options { connections, lanes, timeout, offline_timeout, reconnect, retries, name };
        Self::connecting(py, options, Target::One(url), |client, py| client.into_py_any(py))
    }

    /// Sends a command, given as its name and arguments. Returns a future of its reply.
    ///
    /// Small commands of all tasks share its connection, and wait behind a large value until all of it has arrived or was sent: use
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
        self.start(py, engine.execute(command), |py, value| Ok(reply::to_python(py, value)?.unbind()))
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
        let event_loop = self.event_loop.bind(py);
        EventLoop::start_in_background(
            event_loop,
            &self.handle,
            Cancelled::Stops,
            engine.block(arguments, limit),
            |of, value| Ok(reply::to_python(of.py(), value)?.unbind()),
        )
    }

    /// Begins a pipeline: commands that are sent together.
    fn pipeline(slf: Py<Self>) -> AsyncPipeline {
        AsyncPipeline { client: slf, commands: Mutex::default() }
    }

    /// Reads a value into a writable buffer. The future's result is the length of the value, or None if the key does not exist.
    #[pyo3(signature = (key, buffer, *, timeout=None))]
    fn get_into<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        buffer: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let engine = self.engine(py)?;
        let limit = arguments::limit(timeout)?;
        let load = batch::load(key, buffer)?;
        let room = load.memory.len();
        let load = |stop| engine.load(vec![load], Fit::Within, limit, stop);
        self.transfer(py, load, move |py, fetched| batch::length(py, fetched, room))
    }

    /// Reads many values, each into its buffer. The future's result is the list of their lengths, with None for missing keys.
    #[pyo3(signature = (keys, buffers, *, timeout=None))]
    fn mget_into<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        buffers: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let engine = self.engine(py)?;
        let limit = arguments::limit(timeout)?;
        let loads = batch::loads(keys, buffers)?;
        let rooms: Vec<_> = loads.iter().map(|load| load.memory.len()).collect();
        let load = |stop| engine.load(loads, Fit::Within, limit, stop);
        self.transfer(py, load, move |py, fetched| batch::lengths(py, fetched, &rooms))
    }

    /// Sets a value from a buffer, which must not change until the future is done. ``ttl`` is in seconds.
    #[pyo3(signature = (key, buffer, *, ttl=None, timeout=None))]
    fn set_from<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        buffer: &Bound<'py, PyAny>,
        ttl: Option<f64>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let engine = self.engine(py)?;
        let (ttl, limit) = (arguments::time_to_live(ttl)?, arguments::limit(timeout)?);
        let stores = vec![batch::store(key, buffer)?];
        self.transfer(py, |stop| engine.store(stores, ttl, limit, stop), batch::stored)
    }

    /// Sets many values, each from its buffer.
    #[pyo3(signature = (keys, buffers, *, ttl=None, timeout=None))]
    fn mset_from<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        buffers: &Bound<'py, PyAny>,
        ttl: Option<f64>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let engine = self.engine(py)?;
        let (ttl, limit) = (arguments::time_to_live(ttl)?, arguments::limit(timeout)?);
        let stores = batch::stores(keys, buffers)?;
        self.transfer(py, |stop| engine.store(stores, ttl, limit, stop), batch::stored)
    }

    /// Whether each key exists.
    #[pyo3(signature = (keys, *, timeout=None))]
    fn exists_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let engine = self.engine(py)?;
        let limit = arguments::limit(timeout)?;
        let counted = engine.count_all("EXISTS", arguments::keys(keys)?, limit);
        self.start(py, counted, |py, exists| exists.into_py_any(py))
    }

    /// Deletes keys. The future's result says of each whether it existed.
    #[pyo3(signature = (keys, *, timeout=None))]
    fn delete_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let engine = self.engine(py)?;
        let limit = arguments::limit(timeout)?;
        let counted = engine.count_all("UNLINK", arguments::keys(keys)?, limit);
        self.start(py, counted, |py, existed| existed.into_py_any(py))
    }

    /// Registers memory, which ``set_from`` and ``mset_from`` then send from without a copy over RDMA. Each connection registers it with
    /// the device when it first sends from it, which pins it. Over TCP this changes nothing.
    fn register(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<Registration> {
        self.engine(py)?.registrations.register(buffer)
    }

    /// Opens a connection for subscriptions. The future's result is an ``AsyncSubscriber``.
    fn subscriber<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let engine = self.engine(py)?;
        let handle = self.handle.clone();
        let open = async move { Ok(engine.client.subscriber().await?) };
        let own = self.event_loop.bind(py);
        EventLoop::start_in_background(own, &self.handle, Cancelled::GoesOn, open, move |of, opened| {
            AsyncSubscriber::new(opened, of.clone().unbind(), handle).into_py_any(of.py())
        })
    }

    /// Describes the connection; of a cluster, its nodes and the connection to each.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        describe::info(py, &self.engine(py)?.client)
    }

    /// Counters of the client and of its connections.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        describe::stats(py, &*self.engine(py)?)
    }

    /// Closes all connections, after the replies to what was sent, which it waits for up to 3 s. No buffer is in use when the await
    /// returns.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let engine = self.engine.get(py)?.clone();
        let at_end = EndOnDrop::new(&self.event_loop);
        let close = engine.close();
        self.start(py, close, move |py, ()| {
            drop(at_end);
            Ok(py.None())
        })
    }

    fn __aenter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        EventLoop::ready(slf.get().event_loop.bind(slf.py()), slf.clone().unbind().into_any())
    }

    #[pyo3(signature = (*_exception))]
    fn __aexit__<'py>(
        &self,
        py: Python<'py>,
        _exception: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.close(py)
    }
}

impl Drop for AsyncClient {
    fn drop(&mut self) {
        if self.engine.here().is_some() {
            self.event_loop.get().end();
        }
    }
}

/// Commands that are sent together, without waiting for replies in between.
#[pyclass(frozen, module = "valkey_rdma", weakref)]
pub(crate) struct AsyncPipeline {
    client: Py<AsyncClient>,
    commands: Mutex<Vec<Command>>,
}

#[pymethods]
impl AsyncPipeline {
    /// Adds a command, given as its name and arguments.
    #[pyo3(signature = (*arguments))]
    fn command<'py>(slf: &Bound<'py, Self>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, Self>> {
        let command = arguments::command(arguments, None)?;
        lock(&slf.get().commands).push(command);
        Ok(slf.clone())
    }

    /// Sends the commands. The future's result is the list of replies. It raises the first error reply, or with
    /// ``raise_on_error=False`` has it in its place.
    #[pyo3(signature = (*, raise_on_error=true, timeout=None))]
    fn execute<'py>(
        &self,
        py: Python<'py>,
        raise_on_error: bool,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let client = self.client.get();
        let engine = client.engine(py)?;
        let limit = arguments::limit(timeout)?;
        let commands = std::mem::take(&mut *lock(&self.commands));
        client.start(py, engine.pipeline(commands, limit), move |py, replies| {
            reply::list_to_python(py, replies, raise_on_error)
        })
    }

    fn __len__(&self) -> usize {
        lock(&self.commands).len()
    }
}
