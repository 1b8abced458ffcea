//! `Subscriber` and `AsyncSubscriber`: published messages.

use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use valkey_rdma_client::pubsub::Event;

use crate::arguments;
use crate::caller::{Caller, Kind};
use crate::errors::Failure;
use crate::event_loop::{Cancelled, EventLoop};
use crate::local::Local;
use crate::pubsub::{Shared, event_to_python, subscription};
use crate::python::Answer;
use crate::runtime;

/// What ``Subscriber`` and ``AsyncSubscriber`` have in common.
#[pyclass(frozen, module = "valkey_rdma", subclass, weakref)]
pub(crate) struct BaseSubscriber {
    shared: Local<Arc<Shared>>,
    /// Background threads take its messages, which also come while no thread waits.
    caller: Caller,
}

/// Subscriptions on a connection of their own. Iterate over it, or call ``next``.
///
/// Events are dictionaries. ``{"type": "message", "channel": b"...", "pattern": None, "payload": b"..."}`` is a message. The types
/// ``"missed"`` (with ``count``: messages dropped because this program was too slow), ``"reconnected"`` (messages in between are lost),
/// ``"refused"`` (with ``name`` and ``error``) and ``"login_refused"`` (with ``error``: the server refuses the login for the next
/// connection, which is tried again) report what a program that must not miss anything needs to know.
#[pyclass(frozen, module = "valkey_rdma", extends = BaseSubscriber)]
pub(crate) struct Subscriber;

/// Subscriptions on a connection of their own, for asyncio: ``async for event in subscriber``. Events are as ``Subscriber`` returns
/// them.
#[pyclass(frozen, module = "valkey_rdma", extends = BaseSubscriber)]
pub(crate) struct AsyncSubscriber;

impl BaseSubscriber {
    /// The subscriber that `opening` opens, for calls as those of a client.
    pub(crate) fn open<'py>(
        py: Python<'py>,
        of: &Caller,
        opening: impl Future<Output = Result<valkey_rdma_client::Subscriber, Failure>> + Send + 'static,
    ) -> Answer<'py> {
        let handle = of.handle.clone();
        let base = move |opened, kind| {
            let shared = Local::new(Shared::new(opened));
            PyClassInitializer::from(Self { shared, caller: Caller { handle, kind } })
        };
        let Kind::Awaits(own) = &of.kind else {
            let waiting = Caller { handle: of.handle.clone(), kind: Kind::Waits };
            let opened = waiting.wait(py, opening)?;
            return Bound::new(py, base(opened, Kind::Waits).add_subclass(Subscriber))?.into_bound_py_any(py);
        };
        EventLoop::start_in_background(own.bind(py), &of.handle, Cancelled::GoesOn, opening, |of, opened| {
            let base = base(opened, Kind::Awaits(of.clone().unbind()));
            Py::new(of.py(), base.add_subclass(AsyncSubscriber))?.into_py_any(of.py())
        })
    }

    fn order<'py>(
        &self,
        py: Python<'py>,
        names: &Bound<'py, PyTuple>,
        kind: &str,
        subscribe: bool,
    ) -> Answer<'py> {
        let (kind, names) = (subscription(kind)?, arguments::keys(names)?);
        let order = self.shared.get(py)?.clone().order(kind, subscribe, names);
        self.caller.run(py, Cancelled::GoesOn, order, |py, ()| Ok(py.None()))
    }
}

#[pymethods]
impl BaseSubscriber {
    /// Subscribes to channels by name; with ``kind="pattern"`` to patterns, with ``kind="shard"`` to shard channels.
    #[pyo3(signature = (*names: "Key", kind: "Kind" = "channel") -> "Result[None]")]
    fn subscribe<'py>(&self, py: Python<'py>, names: &Bound<'py, PyTuple>, kind: &str) -> Answer<'py> {
        self.order(py, names, kind, true)
    }

    /// Ends subscriptions.
    #[pyo3(signature = (*names: "Key", kind: "Kind" = "channel") -> "Result[None]")]
    fn unsubscribe<'py>(&self, py: Python<'py>, names: &Bound<'py, PyTuple>, kind: &str) -> Answer<'py> {
        self.order(py, names, kind, false)
    }

    /// The next event; None if there is none within ``timeout`` seconds. A cancelled call loses no event.
    #[pyo3(signature = (timeout: "float | None" = None) -> "Result[dict[str, Any] | None]")]
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> Answer<'py> {
        let limit = arguments::seconds("timeout", timeout)?;
        let shared = self.shared.get(py)?.clone();
        let next = async move {
            let event = shared.clone().next(limit).await?;
            Ok(Taken { shared, event })
        };
        self.caller.run(py, Cancelled::Stops, next, |py, mut taken| {
            taken.event.take().map_or_else(|| Ok(py.None()), |event| event_to_python(py, event))
        })
    }

    /// Closes the connection.
    #[pyo3(signature = () -> "Result[None]")]
    fn close<'py>(&self, py: Python<'py>) -> Answer<'py> {
        if matches!(self.caller.kind, Kind::Waits) && runtime::is_exiting() {
            return Ok(py.None().into_bound(py));
        }
        let close = self.shared.get(py)?.clone().close();
        self.caller.run(py, Cancelled::GoesOn, close, |py, ()| Ok(py.None()))
    }
}

#[pymethods]
impl Subscriber {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(slf: &Bound<'py, Self>) -> Answer<'py> {
        slf.as_super().get().next(slf.py(), None)
    }

    #[pyo3(signature = () -> "Self")]
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception: "object") -> "None")]
    fn __exit__<'py>(slf: &Bound<'py, Self>, _exception: &Bound<'py, PyTuple>) -> Answer<'py> {
        slf.as_super().get().close(slf.py())
    }
}

#[pymethods]
impl AsyncSubscriber {
    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> Answer<'py> {
        slf.as_super().get().next(slf.py(), None)
    }
}

/// An event on its way to a caller. If a future does not want it any more, it goes back.
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
