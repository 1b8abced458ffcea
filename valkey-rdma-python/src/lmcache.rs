//! `LMCacheClient`: the contract of LMCache's `native_plugin` L2 adapter.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use pyo3::exceptions::PyBlockingIOError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tokio::runtime::Handle;
use valkey_rdma_client::cluster::ReadFrom;
use valkey_rdma_client::{Backoff, Error, Fetched};

use crate::completions::Completions;
use crate::connected::Connected;
use crate::engine::{Engine, within};
use crate::errors::Failure;
use crate::local::Local;
use crate::options::Target;
use crate::options::{self, MAX_LANES, Options};
use crate::python::Any;
use crate::registration::Registration;
use crate::runtime;
use crate::transfer::{Fit, PerKey};
use crate::{arguments, batch, describe, memory};

/// A finished batch: its number, whether all of it succeeded, else why not, and the outcome of each key.
type Completion = (u64, bool, String, Option<Vec<bool>>);

/// A storage connector for LMCache: ``{"type": "native_plugin", "module_path": "valkey_rdma", "class_name": "LMCacheClient"}``.
///
/// ``submit_batch_get``, ``_set``, ``_exists`` and ``_delete`` return a number at once. The descriptor ``event_fd()`` is readable
/// while ``drain_completions()`` has something to return: tuples of that number, whether all keys succeeded, an error text, and a bool
/// for each key. A get succeeds if the value has exactly the length of its buffer; otherwise the buffer is untouched, unless a shorter
/// value came directly.
///
/// Parameters: ``url``; ``connections``, over which batches are spread; ``ttl`` in seconds; ``key_prefix``; ``timeout`` in seconds for
/// a batch; ``max_pending``, the batches that may be in flight: one more raises BlockingIOError; ``cluster``: with True, ``url`` is a
/// node of a cluster, or a list of them, and ``connections`` counts those to each node; ``offline_timeout``, the seconds for which batches
/// wait for a server that is away, or that reads its data after a restart, before they fail: less than LMCache waits for a lookup, which then costs a recomputation;
/// ``credentials``, as of ``Client``: what supplies user and password for each connection.
#[pyclass(frozen, module = "valkey_rdma", subclass, weakref)]
#[derive(Default)]
pub(crate) struct LMCacheClient {
    connector: Connected<Connector>,
}

struct Connector {
    shared: Local<Arc<Shared>>,
    handle: Handle,
    prefix: Vec<u8>,
    ttl: Option<u64>,
    timeout: Option<Duration>,
    max_pending: usize,
    next: AtomicU64,
}

/// What batches use on background threads.
struct Shared {
    engine: Arc<Engine>,
    completions: Completions<Completion>,
    /// Batches in flight, and those not drained.
    pending: AtomicUsize,
}

impl Connector {
    fn shared(&self, py: Python<'_>) -> PyResult<&Arc<Shared>> {
        self.shared.get(py)
    }

    /// The engine, for a batch.
    fn engine(&self, py: Python<'_>) -> PyResult<Arc<Engine>> {
        memory::release_all(py);
        runtime::refuse_at_exit(py)?;
        let shared = self.shared(py)?;
        if shared.engine.is_closed() {
            return Err(Failure::Closed.raise(py));
        }
        if shared.pending.load(Ordering::Acquire) >= self.max_pending {
            return Err(PyBlockingIOError::new_err(format!(
                "{} batches are in flight: drain completions before submitting more",
                self.max_pending
            )));
        }
        Ok(shared.engine.clone())
    }

    fn keys(&self, keys: &Any) -> PyResult<Vec<Bytes>> {
        Ok(arguments::keys(keys)?.into_iter().map(|key| self.prefixed(key)).collect())
    }

    fn prefixed(&self, key: Bytes) -> Bytes {
        if self.prefix.is_empty() { key } else { [&self.prefix[..], &key].concat().into() }
    }

    /// Starts a batch of `count` keys, and returns its number. `work` returns for each key whether it succeeded, and the first
    /// error text.
    fn submit<F>(&self, py: Python<'_>, count: usize, work: F) -> PyResult<u64>
    where
        F: Future<Output = Result<(Vec<bool>, Option<String>), Failure>> + Send + 'static,
    {
        let shared = self.shared(py)?.clone();
        let in_flight = match shared.engine.begin() {
            Ok(in_flight) => in_flight,
            Err(closed) => {
                drop(work);
                memory::release_all(py);
                return Err(closed.raise(py));
            }
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        shared.pending.fetch_add(1, Ordering::AcqRel);
        self.handle.spawn(async move {
            let (succeeded, error) = match work.await {
                Ok(outcome) => outcome,
                Err(failure) => (vec![false; count], Some(failure.text())),
            };
            shared.completions.push((number, error.is_none(), error.unwrap_or_default(), Some(succeeded)));
            drop(in_flight);
        });
        Ok(number)
    }
}

#[pymethods]
impl LMCacheClient {
    #[new]
    #[pyo3(
        signature = (*_arguments, **_keywords),
        text_signature = "(url, *, connections=8, ttl=None, key_prefix='', timeout=30.0, max_pending=1024, cluster=False, offline_timeout=1.0, credentials=None)"
    )]
    fn new(_arguments: &Bound<'_, PyTuple>, _keywords: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    #[pyo3(signature = (url: "Urls", *, connections: "int" = 8, ttl: "float | None" = None, key_prefix: "str" = "", timeout: "float | None" = Some(30.0), max_pending: "int" = 1024, cluster: "bool" = false, offline_timeout: "float | None" = Some(1.0), credentials: "Provider | None" = None) -> "None")]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn __init__(
        &self,
        py: Python<'_>,
        url: &Any,
        connections: i64,
        ttl: Option<f64>,
        key_prefix: &str,
        timeout: Option<f64>,
        max_pending: i64,
        cluster: bool,
        offline_timeout: Option<f64>,
        credentials: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        options::in_range("connections", connections, 1, MAX_LANES)?;
        let max_pending = options::in_range("max_pending", max_pending, 1, u32::MAX)? as usize;
        let settings = Options {
            connections: 1,
            lanes: connections,
            timeout,
            offline_timeout: offline_timeout
                .map(|offline| timeout.filter(|timeout| *timeout < offline).unwrap_or(offline)),
            // A lookup that fails costs a recomputation: it should not fail for long after the server is back.
            reconnect: Some(Backoff::default().max(LONGEST_BACKOFF)),
            retries: 3,
            name: None,
            credentials,
        };
        let (ttl, limit) = (arguments::time_to_live(ttl)?, arguments::limit(timeout)?);
        let target = match cluster {
            true => options::cluster(url, ReadFrom::Primary)?,
            false => Target::One(url.extract::<String>()?),
        };
        self.connector.check_new()?;
        let connect = settings.connect(py, target)?;
        let handle = runtime::handle(py)?;
        let engine = runtime::wait(py, &handle, connect)?.map_err(|failure| failure.raise(py))?;
        let connector = Connector {
            shared: Local::new(Arc::new(Shared {
                engine,
                completions: Completions::new()?,
                pending: AtomicUsize::new(0),
            })),
            handle,
            prefix: key_prefix.as_bytes().to_vec(),
            ttl,
            timeout: limit,
            max_pending,
            next: AtomicU64::new(1),
        };
        self.connector.set(connector)
    }

    /// An eventfd, which is readable while completions wait.
    fn event_fd(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.connector.get()?.shared(py)?.completions.fd())
    }

    /// Starts reading each value into its buffer.
    #[pyo3(signature = (keys: "Sequence[str]", bufs: "Sequence[Memory]") -> "int")]
    fn submit_batch_get(&self, py: Python<'_>, keys: &Any, bufs: &Any) -> PyResult<u64> {
        let this = self.connector.get()?;
        let engine = this.engine(py)?;
        let mut loads = batch::loads(keys, bufs)?;
        for load in &mut loads {
            load.key = this.prefixed(std::mem::take(&mut load.key));
        }
        let limit = this.timeout;
        let count = loads.len();
        let work = engine.load(loads, Fit::Exactly, limit, pending::<()>());
        this.submit(py, count, async move { Ok(loaded(work.await?)) })
    }

    /// Starts setting values from buffers, which must not change until the batch is done.
    #[pyo3(signature = (keys: "Sequence[str]", bufs: "Sequence[Memory]") -> "int")]
    fn submit_batch_set(&self, py: Python<'_>, keys: &Any, bufs: &Any) -> PyResult<u64> {
        let this = self.connector.get()?;
        let engine = this.engine(py)?;
        let mut stores = batch::stores(keys, bufs)?;
        for store in &mut stores {
            store.key = this.prefixed(std::mem::take(&mut store.key));
        }
        let (ttl, limit) = (this.ttl, this.timeout);
        let count = stores.len();
        let work = engine.store(stores, ttl, limit, pending::<()>());
        this.submit(py, count, async move { Ok(stored(work.await?)) })
    }

    /// Starts looking whether keys exist. It does not wait for batches of large values.
    #[pyo3(signature = (keys: "Sequence[str]") -> "int")]
    fn submit_batch_exists(&self, py: Python<'_>, keys: &Any) -> PyResult<u64> {
        self.connector.get()?.submit_count(py, "EXISTS", keys)
    }

    /// Starts deleting keys. The outcome of each says whether it existed.
    #[pyo3(signature = (keys: "Sequence[str]") -> "int")]
    fn submit_batch_delete(&self, py: Python<'_>, keys: &Any) -> PyResult<u64> {
        self.connector.get()?.submit_count(py, "UNLINK", keys)
    }

    /// Registers memory, as ``Client.register`` does: batches of values in it go directly where the server offers that.
    #[pyo3(signature = (buffer: "Memory", *, direct: "bool" = true) -> "Registration")]
    fn register(&self, py: Python<'_>, buffer: &Any, direct: bool) -> PyResult<Registration> {
        self.connector.get()?.engine(py)?.registrations.register(buffer, direct)
    }

    /// Takes the batches that are done.
    fn drain_completions(&self, py: Python<'_>) -> PyResult<Vec<Completion>> {
        let shared = self.connector.get()?.shared(py)?;
        let completions = shared.completions.take();
        shared.pending.fetch_sub(completions.len(), Ordering::AcqRel);
        memory::release_all(py);
        Ok(completions)
    }

    /// Describes the connection.
    #[pyo3(signature = () -> "dict[str, Any]")]
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        describe::info(py, &self.connector.get()?.shared(py)?.engine.client)
    }

    /// Counters, and the batches in flight.
    #[pyo3(signature = () -> "dict[str, Any]")]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let shared = self.connector.get()?.shared(py)?;
        let stats = describe::stats(py, &shared.engine)?;
        stats.set_item("pending", shared.pending.load(Ordering::Acquire))?;
        Ok(stats)
    }

    /// Stops the batches in flight and closes the connections. No buffer is in use any more when it returns, and
    /// ``drain_completions()`` returns the batches that were stopped as failed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(connector) = self.connector.if_any() else { return Ok(()) };
        let Some(shared) = connector.shared.here().filter(|_| !runtime::is_exiting()).cloned() else {
            return Ok(());
        };
        let closed = runtime::wait(py, &connector.handle, async move {
            shared.engine.stop().await;
            shared.engine.clone().close().await
        });
        memory::release_all(py);
        closed?.map_err(|failure| failure.raise(py))
    }
}

impl Connector {
    fn submit_count(&self, py: Python<'_>, name: &'static str, keys: &Any) -> PyResult<u64> {
        let engine = self.engine(py)?;
        let (keys, limit) = (self.keys(keys)?, self.timeout);
        let count = keys.len();
        self.submit(py, count, async move {
            let in_flight = engine.begin()?;
            let count = engine.count_each(name, keys, limit);
            Ok(counted(within(None, in_flight.stopped(), count).await?))
        })
    }
}

/// Whether each value was read, and why the first was not.
fn loaded(fetched: PerKey<Fetched>) -> (Vec<bool>, Option<String>) {
    let errors: Vec<_> = fetched
        .into_iter()
        .map(|fetched| match fetched {
            Ok(Fetched::Read(_)) => None,
            Ok(Fetched::Missing) => Some("a key does not exist".to_owned()),
            Ok(Fetched::Skipped(len)) => {
                Some(format!("a value has {len} bytes, and its buffer another length"))
            }
            Ok(Fetched::Refused(error)) => Some(error.to_string()),
            Ok(_) => Some("an unknown outcome".to_owned()),
            Err(error) => Some(format!("{error:#}")),
        })
        .collect();
    outcome(errors)
}

fn stored(stored: PerKey<()>) -> (Vec<bool>, Option<String>) {
    outcome(
        stored
            .into_iter()
            .map(|stored: Result<(), Error>| stored.err().map(|error| format!("{error:#}")))
            .collect(),
    )
}

/// Whether each key was there, and why the first that failed did.
fn counted(counted: PerKey<bool>) -> (Vec<bool>, Option<String>) {
    let found = counted.iter().map(|found| matches!(found, Ok(true))).collect();
    let errors = counted.into_iter().filter_map(Result::err).map(|error| format!("{error:#}"));
    (found, summary(errors.collect()))
}

fn outcome(errors: Vec<Option<String>>) -> (Vec<bool>, Option<String>) {
    let succeeded = errors.iter().map(Option::is_none).collect();
    (succeeded, summary(errors.into_iter().flatten().collect()))
}

/// The first error, and how many more there are.
fn summary(errors: Vec<String>) -> Option<String> {
    let more = errors.len().saturating_sub(1);
    let first = errors.into_iter().next()?;
    Some(if more == 0 { first } else { format!("{first} (and {more} more)") })
}

/// Attempts to reconnect come more often than batches give up.
const LONGEST_BACKOFF: Duration = Duration::from_millis(500);
