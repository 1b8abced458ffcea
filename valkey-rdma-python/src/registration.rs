//! [`Registration`]: memory of a Python object that servers read and write directly, and that RDMA connections send from in place.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use valkey_rdma_client::{DirectMemory, SendRegion};
use valkey_rdma_transport::sync::{read, write};

use crate::direct::Place;
use crate::local::Local;
use crate::memory::{self, Memory, Use};
use crate::python::Any;
use crate::runtime::wait_for_forks;

/// The registered memory of a client.
#[derive(Default)]
pub(crate) struct Registrations {
    regions: RwLock<Vec<(u64, Region)>>,
    next: AtomicU64,
}

/// The memory of one registration.
enum Region {
    /// Values are sent from it.
    Sent(SendRegion),
    /// Servers may also read and write it. Each part has the address of its first byte, and is registered with devices as one.
    Direct(Vec<(usize, DirectMemory)>),
}

impl Registrations {
    /// Registers an object's memory. Without `direct`, and if it is read-only, values are only sent from it.
    ///
    /// # Errors
    /// Those of [`Memory::of`].
    pub(crate) fn register(self: &Arc<Self>, object: &Any, direct: bool) -> PyResult<Registration> {
        let memory = Memory::of(object, Use::Keep)?;
        let nbytes = memory.len();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // Forking holds a lock that this takes.
        wait_for_forks(object.py());
        let region = Region::of(memory, direct);
        write(&self.regions).push((number, region));
        Ok(Registration { registrations: Local::new(self.clone()), number, nbytes })
    }

    /// The same value, which RDMA connections do not copy if its memory is registered.
    pub(crate) fn lend(&self, value: Bytes) -> Bytes {
        let regions = read(&self.regions);
        regions.iter().fold(value, |value, (_, region)| region.lend(value))
    }

    /// Where bytes with these addresses are, if servers may read and write them.
    pub(crate) fn place(&self, bytes: &Range<usize>) -> Option<Place> {
        read(&self.regions).iter().find_map(|(_, region)| region.place(bytes))
    }
}

impl Region {
    fn of(memory: Memory, direct: bool) -> Self {
        let start = memory.range().start;
        if !direct || !memory.is_writable() {
            return Self::Sent(SendRegion::new(start, memory.len(), memory));
        }
        let parts = memory.into_parts(PART).into_iter().enumerate().map(|(number, part)| {
            let memory = DirectMemory::from_foreign(Box::new(part));
            (start + number * PART, memory.expect("a part has 1 byte to 1 GiB"))
        });
        Self::Direct(parts.collect())
    }

    fn lend(&self, value: Bytes) -> Bytes {
        match self {
            Self::Sent(region) => region.lend(value),
            Self::Direct(parts) => parts.iter().fold(value, |value, (_, memory)| memory.lend(value)),
        }
    }

    fn place(&self, bytes: &Range<usize>) -> Option<Place> {
        let Self::Direct(parts) = self else { return None };
        let inside = |(start, memory): &(usize, DirectMemory)| {
            let end = bytes.end.min(start + memory.len());
            let range = bytes.start.saturating_sub(*start)..end.saturating_sub(*start);
            (!range.is_empty()).then(|| (memory.clone(), range))
        };
        let ranges: Vec<_> = parts.iter().filter_map(inside).collect();
        let len: usize = ranges.iter().map(|(_, range)| range.len()).sum();
        (len == bytes.len()).then(|| Place::new(ranges))
    }
}

/// Registering more at once would hold up the first call for longer.
const PART: usize = 1 << 30;

/// Memory that values are moved to and from without a copy, made by ``register``. ``with`` ends it, and so does ``close()``.
///
/// The object cannot be resized or freed until the registration and the connections that have used it are closed.
#[pyclass(frozen, module = "valkey_rdma", weakref)]
pub(crate) struct Registration {
    registrations: Local<Arc<Registrations>>,
    number: u64,
    /// The length of the memory in bytes.
    #[pyo3(get)]
    nbytes: usize,
}

#[pymethods]
impl Registration {
    /// Ends the registration. Values are copied again in later calls; those in flight go on. In a forked child, it does nothing.
    fn close(&self, py: Python<'_>) {
        let Some(registrations) = self.registrations.here() else { return };
        let mut regions = write(&registrations.regions);
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
