//! Registered memory of the emulated device.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use valkey_rdma_proto::work::Region;

use crate::device::Access;

/// One registered region. Both ends of a link hold it: the owner by name, the peer by key.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub(super) region: Region,
    pub(super) access: Access,
    bytes: Arc<Mutex<Box<[u8]>>>,
}

impl Memory {
    pub(super) fn new(region: Region, access: Access) -> Self {
        let bytes = Arc::new(Mutex::new(vec![0; region.len as usize].into_boxed_slice()));
        Self { region, access, bytes }
    }

    /// The bytes, for as long as the guard lives. A panic in a caller's closure leaves bytes, not nonsense, so
    /// a poisoned lock is taken all the same.
    pub(super) fn lock(&self) -> MutexGuard<'_, Box<[u8]>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offsets of the `len` bytes at address `addr`, if they lie inside.
    pub(super) fn locate(&self, addr: u64, len: u32) -> Option<Range<usize>> {
        let offset = addr.checked_sub(self.region.addr)?;
        self.range(offset, len)
    }

    /// `offset..offset + len`, if it lies inside.
    pub(super) fn range(&self, offset: u64, len: u32) -> Option<Range<usize>> {
        let end = offset.checked_add(u64::from(len))?;
        (end <= u64::from(self.region.len)).then_some(offset as usize..end as usize)
    }
}
