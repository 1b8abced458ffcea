//! `Client` and `ClusterClient`: clients whose calls wait, from any number of threads.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use valkey_rdma_client::Backoff;

use crate::base_client::{BaseClient, Shared};
use crate::caller::{Caller, Kind};
use crate::local::Local;
use crate::options::{self, Options, Target};
use crate::python::{Answer, Any};
use crate::runtime;

/// A client whose calls wait for their replies, with Python's lock released. Any number of threads may share it.
///
/// Small commands of all threads share ``connections`` connections. Buffers go over up to ``lanes`` further ones, made when needed.
///
/// A client belongs to the process that made it: after a fork, calls in the child raise ``ForkedError``.
///
/// A subclass connects with ``super().__init__(url)``, and takes what arguments it likes.
#[pyclass(frozen, module = "valkey_rdma", extends = BaseClient, subclass)]
pub(crate) struct Client;

/// A client of a Valkey Cluster, with the methods of ``Client``: ``ClusterClient(["rdma://10.0.0.1:6379", "rdma://10.0.0.2:6379"])``.
///
/// The URLs name nodes of the cluster; one that answers is enough. Commands, and each key of a batch, go to the node that serves the
/// key, and follow it when its slot moves or its node fails over. ``connections`` and ``lanes`` are those to each node. ``read_from``
/// says which nodes answer commands that only read: ``"primary"``, ``"prefer-replica"``, ``"round-robin"``, or ``"zone:NAME"`` for
/// an availability zone. Replicas may be behind. Batches of buffers are always read from primaries.
#[pyclass(frozen, module = "valkey_rdma", extends = Client, subclass)]
pub(crate) struct ClusterClient;

fn connect(py: Python<'_>, client: &BaseClient, options: Options, target: Target) -> PyResult<()> {
    client.connect(|| {
        let connect = options.connect(py, target)?;
        let (handle, calls) = (runtime::handle(py)?, Local::new(runtime::calls(py)?));
        let caller = Caller { handle, kind: Kind::Drives(calls) };
        let engine = caller.wait(py, connect)?;
        Ok(Shared::new(engine, caller))
    })
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(
        signature = (*_arguments, **_keywords),
        text_signature = "(url, *, connections=1, lanes=4, timeout=30.0, offline_timeout=10.0, reconnect=True, retries=3, name=None, credentials=None)"
    )]
    fn new(
        _arguments: &Bound<'_, PyTuple>,
        _keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyClassInitializer<Self> {
        PyClassInitializer::from(BaseClient::default()).add_subclass(Self)
    }

    #[pyo3(signature = (url: "str", *, connections: "int" = 1, lanes: "int" = 4, timeout: "float | None" = Some(30.0), offline_timeout: "float | None" = Some(10.0), reconnect: "bool" = true, retries: "int" = 3, name: "str | None" = None, credentials: "Provider | None" = None) -> "None")]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn __init__(
        slf: &Bound<'_, Self>,
        url: String,
        connections: i64,
        lanes: i64,
        timeout: Option<f64>,
        offline_timeout: Option<f64>,
        reconnect: bool,
        retries: i64,
        name: Option<String>,
        credentials: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let reconnect = reconnect.then(Backoff::default);
        let options =
            Options { connections, lanes, timeout, offline_timeout, reconnect, retries, name, credentials };
        connect(slf.py(), slf.as_super().get(), options, Target::One(url))
    }

    #[pyo3(signature = () -> "Self")]
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception: "object") -> "None")]
    fn __exit__<'py>(slf: &Bound<'py, Self>, _exception: &Bound<'py, PyTuple>) -> Answer<'py> {
        slf.as_super().get().close(slf.py())
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        slf.as_super().get().described()
    }
}

#[pymethods]
impl ClusterClient {
    #[new]
    #[pyo3(
        signature = (*_arguments, **_keywords),
        text_signature = "(urls, *, connections=1, lanes=4, timeout=30.0, offline_timeout=10.0, retries=3, name=None, credentials=None, read_from='primary')"
    )]
    fn new(
        _arguments: &Bound<'_, PyTuple>,
        _keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyClassInitializer<Self> {
        PyClassInitializer::from(BaseClient::default()).add_subclass(Client).add_subclass(Self)
    }

    #[pyo3(signature = (urls: "Urls", *, connections: "int" = 1, lanes: "int" = 4, timeout: "float | None" = Some(30.0), offline_timeout: "float | None" = Some(10.0), retries: "int" = 3, name: "str | None" = None, credentials: "Provider | None" = None, read_from: "str" = "primary") -> "None")]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn __init__(
        slf: &Bound<'_, Self>,
        urls: &Any,
        connections: i64,
        lanes: i64,
        timeout: Option<f64>,
        offline_timeout: Option<f64>,
        retries: i64,
        name: Option<String>,
        credentials: Option<Py<PyAny>>,
        read_from: &str,
    ) -> PyResult<()> {
        let target = options::cluster(urls, options::read_from(read_from)?)?;
        let reconnect = Some(Backoff::default());
        let options =
            Options { connections, lanes, timeout, offline_timeout, reconnect, retries, name, credentials };
        connect(slf.py(), slf.as_super().as_super().get(), options, target)
    }
}
