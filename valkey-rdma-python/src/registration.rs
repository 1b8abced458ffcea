//! [`Registration`]: memory of a Python object that RDMA connections send values from in place.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use valkey_rdma_client::SendRegion;
use valkey_rdma_transport::sync::{read, write};

use crate::memory::{self, Memory, Use};
use crate::python::Any;

/// The registered memory of a client.
#[derive(Default)]
pub(crate) struct Registrations {
    regions: RwLock<Vec<(u64, SendRegion)>>,
    next: AtomicU64,
}

impl Registrations {
    /// Registers an object's memory.
    ///
    /// # Errors
    /// Those of [`Memory::of`].
    pub(crate) fn register(self: &Arc<Self>, object: &Any) -> PyResult<Registration> {
        let memory = Memory::of(object, Use::Keep)?;
        let range = memory.range();
        let nbytes = range.len();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let region = SendRegion::new(range.start, nbytes, memory);
        write(&self.regions).push((number, region));
        Ok(Registration { registrations: self.clone(), number, nbytes })
    }

    /// The same value, which RDMA connections do not copy if its memory is registered.
    pub(crate) fn lend(&self, value: Bytes) -> Bytes {
        let regions = read(&self.regions);
        regions.iter().fold(value, |value, (_, region)| region.lend(value))
    }
}

/// Memory that a client sends values from without a copy, made by ``register``. ``with`` ends it, and so does ``close()``.
///
/// The object cannot be resized or freed until the registration and the connections that have sent from it are closed.
#[pyclass(frozen, module = "valkey_rdma", weakref)]
pub(crate) struct Registration {
    registrations: Arc<Registrations>,
    number: u64,
    /// The length of the memory in bytes.
    #[pyo3(get)]
    nbytes: usize,
}

#[pymethods]
impl Registration {
    /// Ends the registration. Values sent later are copied again.
    fn close(&self, py: Python<'_>) {
        let mut regions = write(&self.registrations.regions);
        let ended =
            regions.iter().position(|(number, _)| *number == self.number).map(|at| regions.remove(at));
        drop(regions);
        drop(ended);
        memory::release_all(py);
    }

    #[pyo3(signature = () -> "Self")]
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception: "object") -> "None")]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        format!("<valkey_rdma.Registration of {} bytes>", self.nbytes)
    }
}
