//! `Pipeline` and `AsyncPipeline`: commands that are sent together.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use valkey_rdma_client::Command;
use valkey_rdma_transport::sync::lock;

use super::BaseClient;
use crate::caller::Kind;
use crate::event_loop::Cancelled;
use crate::python::Answer;
use crate::{arguments, reply};

/// What ``Pipeline`` and ``AsyncPipeline`` have in common.
#[pyclass(frozen, module = "valkey_rdma", subclass, weakref)]
pub(crate) struct BasePipeline {
    client: Py<BaseClient>,
    commands: Mutex<Vec<Command>>,
}

/// Commands that are sent together, without waiting for replies in between.
#[pyclass(frozen, module = "valkey_rdma", extends = BasePipeline)]
pub(crate) struct Pipeline;

/// Commands that are sent together, without waiting for replies in between.
#[pyclass(frozen, module = "valkey_rdma", extends = BasePipeline)]
pub(crate) struct AsyncPipeline;

impl BasePipeline {
    /// An empty one of a client.
    pub(crate) fn of(client: Py<BaseClient>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let awaits = matches!(client.get().caller()?.kind, Kind::Awaits(_));
        let base = PyClassInitializer::from(Self { client, commands: Mutex::default() });
        Ok(match awaits {
            true => Py::new(py, base.add_subclass(AsyncPipeline))?.into_any(),
            false => Py::new(py, base.add_subclass(Pipeline))?.into_any(),
        })
    }
}

#[pymethods]
impl BasePipeline {
    /// Adds a command, given as its name and arguments.
    #[pyo3(signature = (*arguments: "Argument") -> "Self")]
    fn command<'py>(slf: &Bound<'py, Self>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, Self>> {
        let command = arguments::command(arguments, None)?;
        lock(&slf.get().commands).push(command);
        Ok(slf.clone())
    }

    /// Sends the commands. The result is the list of replies. It raises the first error reply, or with ``raise_on_error=False`` has it in
    /// its place. The pipeline is empty afterwards.
    #[pyo3(signature = (*, raise_on_error: "bool" = true, timeout: "float | None" = None) -> "Result[list[Any]]")]
    fn execute<'py>(&self, py: Python<'py>, raise_on_error: bool, timeout: Option<f64>) -> Answer<'py> {
        let client = self.client.get();
        let engine = client.engine(py)?;
        let limit = arguments::limit(timeout)?;
        let commands = std::mem::take(&mut *lock(&self.commands));
        client.caller()?.run(py, Cancelled::GoesOn, engine.pipeline(commands, limit), move |py, replies| {
            reply::list_to_python(py, replies, raise_on_error)
        })
    }

    fn __len__(&self) -> usize {
        lock(&self.commands).len()
    }
}
