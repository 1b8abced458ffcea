//! `ClusterClient` and `AsyncClusterClient`: the clients of a cluster, with the methods of those of one server.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use valkey_rdma_client::Backoff;

use crate::async_client::AsyncClient;
use crate::client::Client;
use crate::options::{self, Options};

/// A client of a Valkey Cluster, with the methods of ``Client``: ``ClusterClient(["rdma://10.0.0.1:6379", "rdma://10.0.0.2:6379"])``.
///
/// The URLs name nodes of the cluster; one that answers is enough. Commands, and each key of a batch, go to the node that serves the
/// key, and follow it when its slot moves or its node fails over. ``connections`` and ``lanes`` are those to each node. ``read_from``
/// says which nodes answer commands that only read: ``"primary"``, ``"prefer-replica"``, ``"round-robin"``, or ``"zone:NAME"`` for
/// an availability zone. Replicas may be behind. Batches of buffers are always read from primaries.
#[pyclass(frozen, module = "valkey_rdma", extends = Client, subclass)]
pub(crate) struct ClusterClient;

#[pymethods]
impl ClusterClient {
    #[new]
    #[pyo3(
        signature = (*_arguments, **_keywords),
        text_signature = "(urls, *, connections=1, lanes=4, timeout=30.0, offline_timeout=10.0, retries=3, name=None, read_from='primary')"
    )]
    fn new(
        _arguments: &Bound<'_, PyTuple>,
        _keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyClassInitializer<Self> {
        PyClassInitializer::from(Client::default()).add_subclass(Self)
    }

    #[pyo3(signature = (urls, *, connections=1, lanes=4, timeout=Some(30.0), offline_timeout=Some(10.0), retries=3, name=None, read_from="primary"))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn __init__(
        slf: &Bound<'_, Self>,
        urls: &Bound<'_, PyAny>,
        connections: i64,
        lanes: i64,
        timeout: Option<f64>,
        offline_timeout: Option<f64>,
        retries: i64,
        name: Option<String>,
        read_from: &str,
    ) -> PyResult<()> {
        let target = options::cluster(urls, options::read_from(read_from)?)?;
        let reconnect = Some(Backoff::default());
        let options = Options { connections, lanes, timeout, offline_timeout, reconnect, retries, name };
        slf.as_super().get().connect(slf.py(), options, target)
    }
}

/// A client of a Valkey Cluster for asyncio: ``await AsyncClusterClient.connect(["rdma://10.0.0.1:6379"])``. Its methods are those of
/// ``AsyncClient``, and it finds nodes as ``ClusterClient`` does.
#[pyclass(frozen, module = "valkey_rdma", extends = AsyncClient)]
pub(crate) struct AsyncClusterClient;

#[pymethods]
impl AsyncClusterClient {
    /// Connects. The arguments are those of ``ClusterClient``.
    #[staticmethod]
    #[pyo3(
        signature = (urls, *, connections=1, lanes=4, timeout=Some(30.0), offline_timeout=Some(10.0), retries=3, name=None, read_from="primary"),
        text_signature = "(urls, *, connections=1, lanes=4, timeout=30.0, offline_timeout=10.0, retries=3, name=None, read_from='primary')"
    )]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn connect<'py>(
        py: Python<'py>,
        urls: &Bound<'py, PyAny>,
        connections: i64,
        lanes: i64,
        timeout: Option<f64>,
        offline_timeout: Option<f64>,
        retries: i64,
        name: Option<String>,
        read_from: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let target = options::cluster(urls, options::read_from(read_from)?)?;
        let reconnect = Some(Backoff::default());
        let options = Options { connections, lanes, timeout, offline_timeout, reconnect, retries, name };
        AsyncClient::connecting(py, options, target, |client, py| {
            let client = PyClassInitializer::from(client).add_subclass(Self);
            Ok(Py::new(py, client)?.into_any())
        })
    }
}
