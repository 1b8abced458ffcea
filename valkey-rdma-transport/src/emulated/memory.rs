//! Registered memory of the emulated device.

use std::ops::Range;
use std::sync::Arc;

use bytes::BufMut;
use valkey_rdma_proto::work::Region;

use crate::device::Access;
use crate::in_place::SendMemory;
use crate::sync::{Mutex, MutexGuard, lock};

/// One registered region. Both ends of a link hold it: the owner by name, the peer by key.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub(super) region: Region,
    pub(super) access: Access,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Own(Arc<Mutex<Box<[u8]>>>),
    /// Only read, and only what is held.
    Lent(SendMemory),
}

impl Memory {
    pub(super) fn new(region: Region, access: Access) -> Self {
        let bytes = Arc::new(Mutex::new(vec![0; region.len as usize].into_boxed_slice()));
        Self { region, access, place: Place::Own(bytes) }
    }

    pub(super) fn lent(region: Region, memory: SendMemory) -> Self {
        Self { region, access: Access::Local, place: Place::Lent(memory) }
    }

    /// The bytes, for as long as the guard lives. A panic in a caller's closure leaves bytes, not nonsense, so
    /// a poisoned lock is taken all the same.
    ///
    /// # Panics
    /// If they are lent: a local bug.
    pub(super) fn lock(&self) -> MutexGuard<'_, Box<[u8]>> {
        match &self.place {
            Place::Own(bytes) => lock(bytes),
            Place::Lent(_) => panic!("memory lent to the device is only sent"),
        }
    }

    /// Whether it may be written.
    pub(super) fn is_own(&self) -> bool {
        matches!(self.place, Place::Own(_))
    }

    /// Appends a copy of the bytes to `out`. `false`: they are lent and may change.
    pub(super) fn copy_to(&self, range: Range<usize>, out: &mut dyn BufMut) -> bool {
        match &self.place {
            Place::Own(_) => {
                out.put_slice(&self.lock()[range]);
                true
            }
            Place::Lent(memory) => memory.copy_to(range, out),
        }
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
