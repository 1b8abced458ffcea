//! `AsyncSubscriber`: subscriptions for asyncio.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tokio::runtime::Handle;
use valkey_rdma_client::pubsub::Event;

use crate::arguments;
use crate::event_loop::{Cancelled, EventLoop};
use crate::local::Local;
use crate::pubsub::{Shared, event_to_python, subscription};

/// Subscriptions on a connection of their own, for asyncio: ``async for event in subscriber``. Events are as ``Subscriber`` returns
/// them.
#[pyclass(frozen, module = "valkey_rdma", weakref)]
pub(crate) struct AsyncSubscriber {
    shared: Local<Arc<Shared>>,
    event_loop: Py<EventLoop>,
    handle: Handle,
}

impl AsyncSubscriber {
    /// Events come to this event loop, from tasks of `handle`'s runtime.
    pub(crate) fn new(
        opened: valkey_rdma_client::Subscriber,
        event_loop: Py<EventLoop>,
        handle: Handle,
    ) -> Self {
        Self { shared: Local::new(Shared::new(opened)), event_loop, handle }
    }

    fn shared(&self, py: Python<'_>) -> PyResult<Arc<Shared>> {
        Ok(self.shared.get(py)?.clone())
    }

    fn order<'py>(
        &self,
        py: Python<'py>,
        names: &Bound<'py, PyTuple>,
        kind: &str,
        subscribe: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let order = self.shared(py)?.order(subscription(kind)?, subscribe, arguments::keys(names)?);
        let event_loop = self.event_loop.bind(py);
        EventLoop::start(event_loop, &self.handle, Cancelled::GoesOn, order, |py, ()| Ok(py.None()))
    }
}

#[pymethods]
impl AsyncSubscriber {
    /// Subscribes to channels by name; with ``kind="pattern"`` to patterns, with ``kind="shard"`` to shard channels.
    #[pyo3(signature = (*names, kind="channel"))]
    fn subscribe<'py>(
        &self,
        py: Python<'py>,
        names: &Bound<'py, PyTuple>,
        kind: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.order(py, names, kind, true)
    }

    /// Ends subscriptions.
    #[pyo3(signature = (*names, kind="channel"))]
    fn unsubscribe<'py>(
        &self,
        py: Python<'py>,
        names: &Bound<'py, PyTuple>,
        kind: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.order(py, names, kind, false)
    }

    /// A future of the next event; of None if there is none within ``timeout`` seconds. A cancelled call loses no event.
    #[pyo3(signature = (timeout=None))]
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let shared = self.shared(py)?;
        let limit = arguments::seconds("timeout", timeout)?;
        let next = async move {
            let event = shared.clone().next(limit).await?;
            Ok(Taken { shared, event })
        };
        let event_loop = self.event_loop.bind(py);
        EventLoop::start(event_loop, &self.handle, Cancelled::Stops, next, |py, mut taken| {
            taken.event.take().map_or_else(|| Ok(py.None()), |event| event_to_python(py, event))
        })
    }

    /// Closes the connection.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let close = self.shared(py)?.close();
        let event_loop = self.event_loop.bind(py);
        EventLoop::start(event_loop, &self.handle, Cancelled::GoesOn, close, |py, ()| Ok(py.None()))
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.next(py, None)
    }
}

/// An event on its way to a future. If the future does not want it any more, it goes back.
struct Taken {
    shared: Arc<Shared>,
    event: Option<Event>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            self.shared.give_back(event);
        }
    }
}
