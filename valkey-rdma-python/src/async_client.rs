//! `AsyncClient` and `AsyncClusterClient`: the clients for asyncio.

use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use valkey_rdma_client::Backoff;

use crate::base_client::{BaseClient, Shared};
use crate::caller::{Caller, Kind};
use crate::event_loop::{Cancelled, EndOnDrop, EventLoop};
use crate::options::{self, Options, Target};
use crate::python::{Answer, Any};
use crate::runtime;

/// A client for asyncio: ``client = await AsyncClient.connect(url)``. Its methods start their operation at once and return a future of
/// their result.
///
/// Commands and pipelines run in the order of the calls, without an await between them: on its one connection, as long as that is not
/// lost. There is no order between ``connections`` if there are several, between the nodes of a cluster or
/// before they were connected to, and between these calls and those that have connections of their own: with buffers, ``blocking_command``,
/// ``subscriber``, and commands such as ``SCRIPT KILL``, which must not wait behind the script.
///
/// It belongs to the loop that was running in ``connect``. Cancelled calls with buffers, and cancelled blocking commands, stop, and
/// close their connection: when the await returns, the buffers are free. A value that was being set may be set. Other cancelled calls
/// go on, and their replies are dropped.
#[pyclass(frozen, module = "valkey_rdma", extends = BaseClient, subclass)]
pub(crate) struct AsyncClient;

/// A client of a Valkey Cluster for asyncio: ``await AsyncClusterClient.connect(["rdma://10.0.0.1:6379"])``. Its methods are those of
/// ``AsyncClient``, and it finds nodes as ``ClusterClient`` does.
#[pyclass(frozen, module = "valkey_rdma", extends = AsyncClient)]
pub(crate) struct AsyncClusterClient;

/// Connects. The future's result is what `finish` makes of the client.
fn connect<'py, T: PyClass>(
    py: Python<'py>,
    options: Options,
    target: Target,
    finish: impl FnOnce(PyClassInitializer<AsyncClient>) -> PyClassInitializer<T> + Send + 'static,
) -> Answer<'py> {
    let connect = options.connect(py, target)?;
    let handle = runtime::handle(py)?;
    let event_loop = EventLoop::running(py)?;
    let (ours, unless_made) = (handle.clone(), EndOnDrop::new(&event_loop));
    let made = move |of: &Bound<'_, EventLoop>, engine| {
        unless_made.forget();
        let caller = Caller { handle: ours, kind: Kind::Awaits(of.clone().unbind()) };
        let base = BaseClient::connected(Shared::new(engine, caller));
        Ok(Py::new(of.py(), finish(PyClassInitializer::from(base).add_subclass(AsyncClient)))?.into_any())
    };
    EventLoop::start_in_background(event_loop.bind(py), &handle, Cancelled::Stops, connect, made)
}

#[pymethods]
impl AsyncClient {
    /// Connects. The arguments are those of ``Client``.
    #[staticmethod]
    #[pyo3(
        signature = (url: "str", *, connections: "int" = 1, lanes: "int" = 4, timeout: "float | None" = Some(30.0), offline_timeout: "float | None" = Some(10.0), reconnect: "bool" = true, retries: "int" = 3, name: "str | None" = None, credentials: "Provider | None" = None) -> "Future[AsyncClient]",
        text_signature = "(url, *, connections=1, lanes=4, timeout=30.0, offline_timeout=10.0, reconnect=True, retries=3, name=None, credentials=None)"
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
        credentials: Option<Py<PyAny>>,
    ) -> Answer<'py> {
        let reconnect = reconnect.then(Backoff::default);
        let options =
            Options { connections, lanes, timeout, offline_timeout, reconnect, retries, name, credentials };
        connect(py, options, Target::One(url), |client| client)
    }

    #[pyo3(signature = () -> "Future[Self]")]
    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> Answer<'py> {
        let py = slf.py();
        match &slf.as_super().get().caller()?.kind {
            Kind::Awaits(event_loop) => {
                EventLoop::ready(event_loop.bind(py), slf.clone().unbind().into_any())
            }
            Kind::Drives(_) | Kind::Waits => Ok(slf.clone().into_any()),
        }
    }

    #[pyo3(signature = (*_exception: "object") -> "Future[None]")]
    fn __aexit__<'py>(slf: &Bound<'py, Self>, _exception: &Bound<'py, PyTuple>) -> Answer<'py> {
        slf.as_super().get().close(slf.py())
    }
}

#[pymethods]
impl AsyncClusterClient {
    /// Connects. The arguments are those of ``ClusterClient``.
    #[staticmethod]
    #[pyo3(
        signature = (urls: "Urls", *, connections: "int" = 1, lanes: "int" = 4, timeout: "float | None" = Some(30.0), offline_timeout: "float | None" = Some(10.0), retries: "int" = 3, name: "str | None" = None, credentials: "Provider | None" = None, read_from: "str" = "primary") -> "Future[AsyncClusterClient]",
        text_signature = "(urls, *, connections=1, lanes=4, timeout=30.0, offline_timeout=10.0, retries=3, name=None, credentials=None, read_from='primary')"
    )]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn connect<'py>(
        py: Python<'py>,
        urls: &Any,
        connections: i64,
        lanes: i64,
        timeout: Option<f64>,
        offline_timeout: Option<f64>,
        retries: i64,
        name: Option<String>,
        credentials: Option<Py<PyAny>>,
        read_from: &str,
    ) -> Answer<'py> {
        let target = options::cluster(urls, options::read_from(read_from)?)?;
        let reconnect = Some(Backoff::default());
        let options =
            Options { connections, lanes, timeout, offline_timeout, reconnect, retries, name, credentials };
        connect(py, options, target, |client| client.add_subclass(Self))
    }
}
