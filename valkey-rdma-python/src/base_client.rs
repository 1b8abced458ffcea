//! `BaseClient`: the methods of `Client` and `AsyncClient`, of which each is here once.
//!
//! Signatures have the types for the stub. `Result[T]` is `T` in a `Client`, and `Future[T]` in an `AsyncClient`: see `stubs.py`.

pub(crate) mod pipeline;

use std::sync::Arc;
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use valkey_rdma_client::Fetched;

use self::pipeline::BasePipeline;
use crate::caller::{Caller, Kind};
use crate::connected::Connected;
use crate::engine::Engine;
use crate::errors::Failure;
use crate::event_loop::{Cancelled, EndOnDrop, EventLoop};
use crate::local::Local;
use crate::python::{Answer, Any};
use crate::registration::Registration;
use crate::subscriber::BaseSubscriber;
use crate::transfer::{Fit, Load, PerKey, Store};
use crate::{arguments, batch, describe, memory, reply, runtime};

/// What ``Client`` and ``AsyncClient`` have in common.
#[pyclass(frozen, module = "valkey_rdma", subclass, weakref)]
#[derive(Default)]
pub(crate) struct BaseClient {
    shared: Connected<Shared>,
}

pub(crate) struct Shared {
    engine: Local<Arc<Engine>>,
    caller: Caller,
}

impl Shared {
    pub(crate) fn new(engine: Arc<Engine>, caller: Caller) -> Self {
        Self { engine: Local::new(engine), caller }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let (Kind::Awaits(event_loop), Some(_)) = (&self.caller.kind, self.engine.here()) {
            event_loop.get().end();
        }
    }
}

impl BaseClient {
    pub(crate) fn connected(shared: Shared) -> Self {
        Self { shared: shared.into() }
    }

    /// Connects with `connect`, once.
    pub(crate) fn connect(&self, connect: impl FnOnce() -> PyResult<Shared>) -> PyResult<()> {
        self.shared.check_new()?;
        self.shared.set(connect()?)
    }

    pub(crate) fn caller(&self) -> PyResult<&Caller> {
        Ok(&self.shared.get()?.caller)
    }

    /// The engine.
    ///
    /// # Errors
    /// If the client is closed or of another process, or was never connected.
    pub(crate) fn engine(&self, py: Python<'_>) -> PyResult<Arc<Engine>> {
        memory::release_all(py);
        let engine = self.shared.get()?.engine.get(py)?;
        if engine.is_closed() {
            return Err(Failure::Closed.raise(py));
        }
        Ok(engine.clone())
    }

    /// Its class and what it is connected to.
    pub(crate) fn described(&self) -> String {
        match self.shared.if_any().map(|shared| shared.engine.here()) {
            None => "<valkey_rdma.Client not connected>".to_owned(),
            Some(None) => "<valkey_rdma.Client of another process>".to_owned(),
            Some(Some(engine)) => format!("<valkey_rdma.{engine}>"),
        }
    }

    /// The engine, for a call with this time limit.
    ///
    /// # Errors
    /// As [`engine`](Self::engine), and if the limit is none.
    fn begin(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<(Arc<Engine>, Option<Duration>)> {
        Ok((self.engine(py)?, arguments::limit(timeout)?))
    }

    fn load<'py>(
        &self,
        py: Python<'py>,
        (engine, limit): (Arc<Engine>, Option<Duration>),
        loads: Vec<Load>,
        convert: impl FnOnce(Python<'_>, PerKey<Fetched>, &[usize]) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Answer<'py> {
        let rooms: Vec<_> = loads.iter().map(|load| load.memory.len()).collect();
        let load = |stop| engine.load(loads, Fit::Within, limit, stop);
        let bytes = rooms.iter().sum();
        self.caller()?.transfer(py, bytes, load, move |py, fetched| convert(py, fetched, &rooms))
    }

    fn store<'py>(
        &self,
        py: Python<'py>,
        (engine, limit): (Arc<Engine>, Option<Duration>),
        ttl: Option<u64>,
        stores: Vec<Store>,
    ) -> Answer<'py> {
        let bytes = stores.iter().map(|store| store.value.len()).sum();
        let store = |stop| engine.store(stores, ttl, limit, stop);
        self.caller()?.transfer(py, bytes, store, batch::stored)
    }

    fn count<'py>(
        &self,
        py: Python<'py>,
        name: &'static str,
        keys: &Any,
        timeout: Option<f64>,
    ) -> Answer<'py> {
        let (engine, limit) = self.begin(py, timeout)?;
        let counted = engine.count_all(name, arguments::keys(keys)?, limit);
        self.caller()?.run(py, Cancelled::GoesOn, counted, |py, counted| counted.into_py_any(py))
    }
}

#[pymethods]
impl BaseClient {
    /// Sends a command, given as its name and arguments. The result is its reply.
    ///
    /// Small commands of all callers share its connection, and wait behind a large value until all of it has arrived or was sent: use
    /// ``get_into`` and ``set_from`` for those.
    #[pyo3(signature = (*arguments: "Argument", timeout: "float | None" = None) -> "Result[Any]")]
    fn command<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        timeout: Option<f64>,
    ) -> Answer<'py> {
        let (engine, limit) = self.begin(py, timeout)?;
        let command = arguments::command(arguments, limit)?;
        self.caller()?.run(py, Cancelled::GoesOn, engine.execute(command), reply::one_to_python)
    }

    /// Sends a blocking command, such as BLPOP, on a connection of its own.
    #[pyo3(signature = (*arguments: "Argument", timeout: "float | None" = None) -> "Result[Any]")]
    fn blocking_command<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        timeout: Option<f64>,
    ) -> Answer<'py> {
        let (engine, limit) = self.begin(py, timeout)?;
        let arguments = arguments.iter().map(|argument| arguments::key(&argument));
        let arguments = arguments.collect::<PyResult<Vec<_>>>()?;
        self.caller()?.run_in_background(py, engine.block(arguments, limit), reply::one_to_python)
    }

    /// Begins a pipeline: commands that are sent together.
    #[pyo3(signature = () -> "Pipeline")]
    fn pipeline(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        BasePipeline::of(slf, py)
    }

    /// Reads a value into a writable buffer, without a copy in between.
    ///
    /// The result is the length of the value, or None if the key does not exist; the buffer is untouched then, unless a connection was
    /// lost meanwhile.
    #[pyo3(signature = (key: "Key", buffer: "Memory", *, timeout: "float | None" = None) -> "Result[int | None]")]
    fn get_into<'py>(&self, py: Python<'py>, key: &Any, buffer: &Any, timeout: Option<f64>) -> Answer<'py> {
        let begun = self.begin(py, timeout)?;
        self.load(py, begun, vec![batch::load(key, buffer)?], batch::length)
    }

    /// Reads many values, each into its buffer. The result is the list of their lengths, with None for each key that does not exist.
    #[pyo3(signature = (keys: "Iterable[Key]", buffers: "Iterable[Memory]", *, timeout: "float | None" = None) -> "Result[list[int | None]]")]
    fn mget_into<'py>(
        &self,
        py: Python<'py>,
        keys: &Any,
        buffers: &Any,
        timeout: Option<f64>,
    ) -> Answer<'py> {
        let begun = self.begin(py, timeout)?;
        self.load(py, begun, batch::loads(keys, buffers)?, batch::lengths)
    }

    /// Sets a value from a buffer, without a copy in between. The buffer must not change until the value is set. ``ttl`` is in seconds.
    #[pyo3(signature = (key: "Key", buffer: "Memory", *, ttl: "float | None" = None, timeout: "float | None" = None) -> "Result[None]")]
    fn set_from<'py>(
        &self,
        py: Python<'py>,
        key: &Any,
        buffer: &Any,
        ttl: Option<f64>,
        timeout: Option<f64>,
    ) -> Answer<'py> {
        let (begun, ttl) = (self.begin(py, timeout)?, arguments::time_to_live(ttl)?);
        self.store(py, begun, ttl, vec![batch::store(key, buffer)?])
    }

    /// Sets many values, each from its buffer.
    #[pyo3(signature = (keys: "Iterable[Key]", buffers: "Iterable[Memory]", *, ttl: "float | None" = None, timeout: "float | None" = None) -> "Result[None]")]
    fn mset_from<'py>(
        &self,
        py: Python<'py>,
        keys: &Any,
        buffers: &Any,
        ttl: Option<f64>,
        timeout: Option<f64>,
    ) -> Answer<'py> {
        let (begun, ttl) = (self.begin(py, timeout)?, arguments::time_to_live(ttl)?);
        self.store(py, begun, ttl, batch::stores(keys, buffers)?)
    }

    /// Whether each key exists.
    #[pyo3(signature = (keys: "Iterable[Key]", *, timeout: "float | None" = None) -> "Result[list[bool]]")]
    fn exists_many<'py>(&self, py: Python<'py>, keys: &Any, timeout: Option<f64>) -> Answer<'py> {
        self.count(py, "EXISTS", keys, timeout)
    }

    /// Deletes keys; the server frees their memory in the background. The result says of each key whether it existed.
    #[pyo3(signature = (keys: "Iterable[Key]", *, timeout: "float | None" = None) -> "Result[list[bool]]")]
    fn delete_many<'py>(&self, py: Python<'py>, keys: &Any, timeout: Option<f64>) -> Answer<'py> {
        self.count(py, "UNLINK", keys, timeout)
    }

    /// Registers memory, for values of 64 KiB and more that later calls with buffers inside of it move. If the server offers direct
    /// transfers, its adapter writes and reads them there; ``stats()`` counts these, and says why others went over the
    /// stream. Over RDMA, ``set_from`` and ``mset_from`` send from it without a copy in any case. Over TCP this changes nothing.
    ///
    /// Each connection registers it with the device when it first needs that, which pins it. The server can then read and write all of it
    /// until that connection has ended. With ``direct=False``, and if it is read-only, values are only sent from it.
    #[pyo3(signature = (buffer: "Memory", *, direct: "bool" = true) -> "Registration")]
    fn register(&self, py: Python<'_>, buffer: &Any, direct: bool) -> PyResult<Registration> {
        self.engine(py)?.registrations.register(buffer, direct)
    }

    /// Opens a connection for subscriptions.
    #[pyo3(signature = () -> "Result[Subscriber]")]
    fn subscriber<'py>(&self, py: Python<'py>) -> Answer<'py> {
        let engine = self.engine(py)?;
        BaseSubscriber::open(py, self.caller()?, async move { Ok(engine.client.subscriber().await?) })
    }

    /// Describes the connection: transport, device, windows, TLS; and why it is not RDMA, if it should be. Of a cluster: its nodes,
    /// and the connection to each.
    #[pyo3(signature = () -> "dict[str, Any]")]
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        describe::info(py, &self.engine(py)?.client)
    }

    /// Counters of the client, and of each of its connections. Of a cluster also redirections, and the node of each connection.
    #[pyo3(signature = () -> "dict[str, Any]")]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        describe::stats(py, &*self.engine(py)?)
    }

    /// Closes all connections, after the replies to what was sent, which it waits for up to 3 s. No buffer is in use when it is done.
    /// Calls made later raise ``ClosedError``, and so do calls that are cut off. A signal handler that closes a ``Client`` during a call
    /// does not wait: the call raises when the handler has returned.
    #[pyo3(signature = () -> "Result[None]")]
    pub(crate) fn close<'py>(&self, py: Python<'py>) -> Answer<'py> {
        let none = py.None().into_bound(py);
        let Some(Shared { engine, caller }) = self.shared.if_any() else { return Ok(none) };
        if let Kind::Awaits(event_loop) = &caller.kind {
            let at_end = EndOnDrop::new(event_loop);
            let close = engine.get(py)?.clone().close();
            let ended = move |py: Python<'_>, ()| {
                drop(at_end);
                Ok(py.None())
            };
            return EventLoop::start(event_loop.bind(py), &caller.handle, Cancelled::GoesOn, close, ended);
        }
        match engine.here() {
            // A signal handler: the call that it interrupts ends when it returns, and not before.
            Some(engine) if runtime::is_waiting() => engine.clone().end(&caller.handle),
            Some(engine) if !runtime::is_exiting() => caller.wait(py, engine.clone().close())?,
            _ => {}
        }
        Ok(none)
    }
}
