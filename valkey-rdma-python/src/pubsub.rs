//! `Subscriber`: published messages, for calls that wait.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;
use valkey_rdma_client::pubsub::{Event, Subscription};
use valkey_rdma_transport::sync::lock;

use crate::arguments;
use crate::errors::Failure;
use crate::local::Local;
use crate::runtime;

/// A subscriber that the calls of one Python object share.
pub(crate) struct Shared {
    /// `None` once closed.
    subscriptions: tokio::sync::Mutex<Option<valkey_rdma_client::Subscriber>>,
    /// How many calls other than `next` wait for the lock, which `next` holds until there is an event.
    wanted: watch::Sender<usize>,
    /// Events that a cancelled call had taken. They come first.
    returned: Mutex<VecDeque<Event>>,
}

impl Shared {
    pub(crate) fn new(subscriptions: valkey_rdma_client::Subscriber) -> Arc<Self> {
        Arc::new(Self {
            subscriptions: tokio::sync::Mutex::new(Some(subscriptions)),
            wanted: watch::Sender::default(),
            returned: Mutex::default(),
        })
    }

    /// Subscribes, or ends subscriptions.
    pub(crate) async fn order(
        self: Arc<Self>,
        kind: Subscription,
        subscribe: bool,
        names: Vec<bytes::Bytes>,
    ) -> Result<(), Failure> {
        let subscriptions = self.take_over().await;
        let subscriptions = subscriptions.as_ref().ok_or(Failure::Closed)?;
        match subscribe {
            true => subscriptions.subscribe(kind, names).await?,
            false => subscriptions.unsubscribe(kind, names).await?,
        }
        Ok(())
    }

    /// The next event. `None`: there was none within the limit.
    pub(crate) async fn next(self: Arc<Self>, limit: Option<Duration>) -> Result<Option<Event>, Failure> {
        let next = self.wait_for_event();
        match limit {
            None => next.await.map(Some),
            Some(limit) => timeout(limit, next).await.map_or(Ok(None), |event| event.map(Some)),
        }
    }

    async fn wait_for_event(&self) -> Result<Event, Failure> {
        loop {
            self.until_wanted(false).await;
            let mut subscriptions = self.subscriptions.lock().await;
            if let Some(event) = self.returned().pop_front() {
                return Ok(event);
            }
            let subscriptions = subscriptions.as_mut().ok_or(Failure::Closed)?;
            tokio::select! {
                biased;
                event = subscriptions.next() => return Ok(event?),
                () = self.until_wanted(true) => {}
            }
        }
    }

    /// Returns when the lock is wanted by a call other than `next`, or when it is not.
    async fn until_wanted(&self, wanted: bool) {
        // It fails only without the sender.
        let _ = self.wanted.subscribe().wait_for(|calls| (*calls > 0) == wanted).await;
    }

    /// Locks the subscriptions, which a waiting call of `next` gives away.
    async fn take_over(&self) -> tokio::sync::MutexGuard<'_, Option<valkey_rdma_client::Subscriber>> {
        let _wanted = Wanted::new(&self.wanted);
        self.subscriptions.lock().await
    }

    /// Takes back an event that its caller did not want any more.
    pub(crate) fn give_back(&self, event: Event) {
        self.returned().push_back(event);
    }

    pub(crate) async fn close(self: Arc<Self>) -> Result<(), Failure> {
        self.take_over().await.take();
        Ok(())
    }

    fn returned(&self) -> MutexGuard<'_, VecDeque<Event>> {
        lock(&self.returned)
    }
}

/// A call that waits for the lock.
struct Wanted<'a>(&'a watch::Sender<usize>);

impl<'a> Wanted<'a> {
    fn new(calls: &'a watch::Sender<usize>) -> Self {
        calls.send_modify(|calls| *calls += 1);
        Self(calls)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|calls| *calls -= 1);
    }
}

/// Subscriptions on a connection of their own. Iterate over it, or call ``next``.
///
/// Events are dictionaries. ``{"type": "message", "channel": b"...", "pattern": None, "payload": b"..."}`` is a message. The types
/// ``"missed"`` (with ``count``: messages dropped because this program was too slow), ``"reconnected"`` (messages in between are lost)
/// and ``"refused"`` (with ``name`` and ``error``) report what a program that must not miss anything needs to know.
#[pyclass(frozen, module = "valkey_rdma", weakref)]
pub(crate) struct Subscriber {
    shared: Local<Arc<Shared>>,
    handle: Handle,
}

impl Subscriber {
    pub(crate) fn new(subscriptions: valkey_rdma_client::Subscriber, handle: Handle) -> Self {
        Self { shared: Local::new(Shared::new(subscriptions)), handle }
    }

    fn wait<T: Send, F>(&self, py: Python<'_>, call: impl FnOnce(Arc<Shared>) -> F) -> PyResult<T>
    where
        F: Future<Output = Result<T, Failure>> + Send,
    {
        let shared = self.shared.get(py)?;
        runtime::wait(py, &self.handle, call(shared.clone()))?.map_err(|failure| failure.raise(py))
    }
}

#[pymethods]
impl Subscriber {
    /// Subscribes to channels by name; with ``kind="pattern"`` to patterns, with ``kind="shard"`` to shard channels.
    #[pyo3(signature = (*names, kind="channel"))]
    fn subscribe(&self, py: Python<'_>, names: &Bound<'_, PyTuple>, kind: &str) -> PyResult<()> {
        let (kind, names) = (subscription(kind)?, arguments::keys(names)?);
        self.wait(py, |shared| shared.order(kind, true, names))
    }

    /// Ends subscriptions.
    #[pyo3(signature = (*names, kind="channel"))]
    fn unsubscribe(&self, py: Python<'_>, names: &Bound<'_, PyTuple>, kind: &str) -> PyResult<()> {
        let (kind, names) = (subscription(kind)?, arguments::keys(names)?);
        self.wait(py, |shared| shared.order(kind, false, names))
    }

    /// The next event; None if there was none within ``timeout`` seconds.
    #[pyo3(signature = (timeout=None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let limit = arguments::seconds("timeout", timeout)?;
        let event = self.wait(py, |shared| shared.next(limit))?;
        event.map_or_else(|| Ok(py.None()), |event| event_to_python(py, event))
    }

    /// Closes the connection.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if runtime::is_exiting() { Ok(()) } else { self.wait(py, Shared::close) }
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.next(py, None)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}

pub(crate) fn subscription(kind: &str) -> PyResult<Subscription> {
    match kind {
        "channel" => Ok(Subscription::Channel),
        "pattern" => Ok(Subscription::Pattern),
        "shard" => Ok(Subscription::Shard),
        other => Err(PyValueError::new_err(format!("kind must be channel, pattern or shard, not {other:?}"))),
    }
}

pub(crate) fn event_to_python(py: Python<'_>, event: Event) -> PyResult<Py<PyAny>> {
    let dict = PyDict::new(py);
    match event {
        Event::Message(message) => {
            dict.set_item("type", "message")?;
            dict.set_item("channel", PyBytes::new(py, &message.channel))?;
            dict.set_item("pattern", message.pattern.map(|pattern| PyBytes::new(py, &pattern)))?;
            dict.set_item("payload", PyBytes::new(py, &message.payload))?;
        }
        Event::Missed(count) => {
            dict.set_item("type", "missed")?;
            dict.set_item("count", count)?;
        }
        Event::Reconnected => dict.set_item("type", "reconnected")?,
        Event::Refused { name, error, .. } => {
            dict.set_item("type", "refused")?;
            dict.set_item("name", PyBytes::new(py, &name))?;
            dict.set_item("error", Failure::from(error).exception(py)?)?;
        }
        other => dict.set_item("type", format!("{other:?}"))?,
    }
    dict.into_py_any(py)
}
