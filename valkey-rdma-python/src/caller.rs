//! [`Caller`]: how a program gets the result of an operation: its call waits, or returns a future.

use pyo3::prelude::*;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::errors::Failure;
use crate::event_loop::{Cancelled, EventLoop};
use crate::local::Local;
use crate::memory;
use crate::python::Answer;
use crate::runtime::{self, Calls};

/// What calls of an object do until their operation is done.
pub(crate) struct Caller {
    pub(crate) handle: Handle,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    /// They wait, and drive the connections of blocking clients meanwhile.
    Drives(Local<Calls>),
    /// They wait for the background threads.
    Waits,
    /// They return futures of this loop.
    Awaits(Py<EventLoop>),
}

impl Caller {
    /// Runs an operation. A call that waits goes on only with its result; a future may be cancelled.
    pub(crate) fn run<'py, T: Send + 'static>(
        &self,
        py: Python<'py>,
        cancelled: Cancelled,
        operation: impl Future<Output = Result<T, Failure>> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Answer<'py> {
        if let Kind::Awaits(event_loop) = &self.kind {
            return EventLoop::start(event_loop.bind(py), &self.handle, cancelled, operation, convert);
        }
        Ok(convert(py, self.wait(py, operation)?)?.into_bound(py))
    }

    /// As [`run`](Self::run), for what may take its time before it first waits. A cancelled future stops it.
    pub(crate) fn run_in_background<'py, T: Send + 'static>(
        &self,
        py: Python<'py>,
        operation: impl Future<Output = Result<T, Failure>> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Answer<'py> {
        let Kind::Awaits(event_loop) = &self.kind else {
            return self.run(py, Cancelled::Stops, operation, convert);
        };
        let (own, convert) =
            (event_loop.bind(py), |of: &Bound<'_, EventLoop>, value| convert(of.py(), value));
        EventLoop::start_in_background(own, &self.handle, Cancelled::Stops, operation, convert)
    }

    /// As [`run`](Self::run), for an operation on `bytes` of the program's memory, which nothing uses once the call has its result or the
    /// future is cancelled.
    pub(crate) fn transfer<'py, T: Send + 'static, F>(
        &self,
        py: Python<'py>,
        bytes: usize,
        operation: impl FnOnce(oneshot::Receiver<()>) -> F,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Answer<'py>
    where
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        if let Kind::Awaits(event_loop) = &self.kind {
            return EventLoop::start_transfer(event_loop.bind(py), &self.handle, operation, convert);
        }
        let outcome = runtime::wait_until_stopped(py, &self.handle, bytes, operation);
        memory::release_all(py);
        Ok(convert(py, outcome?.map_err(|failure| failure.raise(py))?)?.into_bound(py))
    }

    /// Waits for an operation, then releases the memory of all that have ended.
    pub(crate) fn wait<T: Send>(
        &self,
        py: Python<'_>,
        operation: impl Future<Output = Result<T, Failure>> + Send,
    ) -> PyResult<T> {
        let outcome = match &self.kind {
            Kind::Drives(calls) => runtime::wait_in(py, calls.get(py)?, operation),
            Kind::Waits | Kind::Awaits(_) => runtime::wait(py, &self.handle, operation),
        };
        memory::release_all(py);
        outcome?.map_err(|failure| failure.raise(py))
    }
}
