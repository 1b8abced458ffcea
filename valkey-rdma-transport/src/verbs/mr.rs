//! Registered memory: whole pages between two guard pages, so that a stray access of ours faults instead of
//! reaching a neighbour. And the protection domain, which binds it to its connection's queue pair and to no other.

use std::ops::Range;
use std::ptr::{self, NonNull};
use std::{io, mem, slice};

use bytes::BufMut;

use super::cm::CmId;
use super::sys::{self, convert, ibv_mr, ibv_pd};
use super::{failed, log_teardown};
use crate::device::Access;
use crate::direct::DirectMemory;
use crate::error::{TransportError, memlock_limit};
use crate::send_memory::SendMemory;

/// Memory that the device may reach, and a peer too if it was registered for that.
pub(super) struct MemoryRegion {
    /// `None` once it is deregistered.
    raw: Option<NonNull<ibv_mr>>,
    lkey: u32,
    rkey: u32,
    /// Length in bytes, as asked for; the pages behind it may be longer.
    len: usize,
    access: Access,
    /// Given back after the deregistration.
    memory: Memory,
}

/// Where a region lies.
enum Memory {
    Own(Pages),
    /// Memory of the application, which is there for as long as this is held. The processor does not use it here.
    Lent(SendMemory),
    /// The region is deregistered.
    Gone,
}

impl MemoryRegion {
    /// Maps and registers `len` bytes, zeroed.
    ///
    /// # Safety
    /// The domain outlives the region.
    pub(super) unsafe fn new(
        domain: &ProtectionDomain,
        len: u32,
        access: Access,
    ) -> Result<Self, TransportError> {
        let refused = refusal(len);
        let len = len as usize;
        let pages = Pages::map(len).map_err(&refused)?;
        // SAFETY: the domain is live and outlives the region, by the contract; the pages are owned by the same
        // value and unmapped only after the deregistration.
        let raw = unsafe { sys::reg_mr(domain.raw(), pages.usable, len, convert::access_flags(access)) }
            .map_err(refused)?;
        Ok(Self::registered(raw, len, access, Memory::Own(pages)))
    }

    /// Registers memory of the application, to be read by the device alone.
    ///
    /// # Safety
    /// The domain outlives the region.
    pub(super) unsafe fn lent(
        domain: &ProtectionDomain,
        memory: &SendMemory,
    ) -> Result<Self, TransportError> {
        // SAFETY: the domain by the contract. The device may not write this memory, so no owner of it loses anything. Only
        // ranges that are held as bytes are sent.
        unsafe { Self::of_application(domain, memory, Access::Local, READ_ONLY) }
    }

    /// Registers direct memory, for the device and with some access for the peer.
    ///
    /// # Safety
    /// The domain outlives the region.
    pub(super) unsafe fn direct(
        domain: &ProtectionDomain,
        memory: &DirectMemory,
        access: Access,
    ) -> Result<Self, TransportError> {
        // SAFETY: the domain by the contract. Work requests and peers that keep to the protocol use lent ranges only, and while
        // a range is lent, no reference to its bytes exists. `DirectMemory` documents that other peers are trusted with it.
        unsafe { Self::of_application(domain, memory.sent(), access, convert::access_flags(access)) }
    }

    /// # Safety
    /// The domain outlives the region. What the flags allow the device and the peer takes nothing from an owner of the memory.
    unsafe fn of_application(
        domain: &ProtectionDomain,
        memory: &SendMemory,
        access: Access,
        flags: i32,
    ) -> Result<Self, TransportError> {
        let len = memory.len();
        let refused = refusal(len);
        // For the kernel, which goes by the address: nothing is read or written through this pointer.
        let start =
            NonNull::new(ptr::with_exposed_provenance_mut(memory.start())).expect("memory is nowhere at 0");
        // SAFETY: the domain and the access by the contract. The kernel refuses addresses without memory, and pins the pages
        // until the deregistration.
        let raw = unsafe { sys::reg_mr(domain.raw(), start, len as usize, flags) }.map_err(refused)?;
        Ok(Self::registered(raw, len as usize, access, Memory::Lent(memory.clone())))
    }

    fn registered(raw: NonNull<ibv_mr>, len: usize, access: Access, memory: Memory) -> Self {
        // SAFETY: just made, by both callers.
        let (lkey, rkey) = unsafe { sys::mr_keys(raw) };
        Self { raw: Some(raw), lkey, rkey, len, access, memory }
    }

    /// Ends the registration: from then on, neither the device nor a peer reaches the memory. What was kept of the application's is
    /// returned.
    pub(super) fn deregister(&mut self) -> Option<SendMemory> {
        match self.end() {
            Memory::Lent(memory) => Some(memory),
            Memory::Own(_) | Memory::Gone => None,
        }
    }

    fn end(&mut self) -> Memory {
        self.len = 0;
        let memory = mem::replace(&mut self.memory, Memory::Gone);
        let Some(raw) = self.raw.take() else { return memory };
        // SAFETY: made in `new` or `of_application`, destroyed here only.
        let deregistered = unsafe { sys::dereg_mr(raw) };
        // Then the device may still reach the pages, which nothing else may ever use.
        let failed = deregistered.is_err();
        log_teardown("ibv_dereg_mr", deregistered);
        if failed {
            mem::forget(memory);
            return Memory::Gone;
        }
        memory
    }

    pub(super) fn lkey(&self) -> u32 {
        self.lkey
    }

    pub(super) fn rkey(&self) -> u32 {
        self.rkey
    }

    /// The address of the first byte, for the device and the peer.
    pub(super) fn addr(&self) -> u64 {
        match &self.memory {
            Memory::Own(pages) => pages.usable.as_ptr() as u64,
            Memory::Lent(memory) => memory.start() as u64,
            Memory::Gone => 0,
        }
    }

    /// Whether the processor may read it where it lies, bounds aside: what is lent, only its holder may.
    pub(super) fn is_own(&self) -> bool {
        matches!(self.memory, Memory::Own(_))
    }

    /// Whether `range` lies inside.
    pub(super) fn contains(&self, range: &Range<usize>) -> bool {
        range.start <= range.end && range.end <= self.len
    }

    /// Lends bytes for writing, under the contract of [`DeviceConnection::write_local`](crate::device::DeviceConnection::write_local).
    pub(super) fn fill(&mut self, range: Range<usize>, fill: &mut dyn FnMut(&mut [u8])) {
        assert!(!self.access.allows_write(), "a peer may write this memory: copy into it");
        let start = self.checked(&range);
        // SAFETY: inside of the region, whose pages were zeroed at birth; `&mut self` keeps every other path of
        // this process out for the time of the loan. Peers are kept out by the access, and the device by what the
        // caller vouches for: no posted request reads or fills these bytes.
        fill(unsafe { slice::from_raw_parts_mut(start.as_ptr(), range.len()) });
    }

    /// Copies `bytes` into the region, from `offset` on. The device or a peer may be reading or writing there: no slice
    /// over these bytes is made, and any mixture is a valid outcome.
    pub(super) fn copy_in(&mut self, offset: usize, bytes: &[u8]) {
        let start = self.checked(&(offset..offset.saturating_add(bytes.len())));
        // SAFETY: as many bytes lie in the checked range. The caller's slice is not in these pages, because no slice of
        // them outlives `fill`, which borrows the region.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), bytes.len()) };
    }

    /// Appends a copy of the bytes to `out`. The device or a peer may be writing them: no slice over them is
    /// ever made, and any mixture of old and new bytes is a valid outcome.
    pub(super) fn copy_out(&self, range: Range<usize>, out: &mut dyn BufMut) {
        if let Memory::Lent(memory) = &self.memory {
            assert!(memory.copy_to(range, out), "lent bytes are held while they are used");
            return;
        }
        let mut from = self.checked(&range);
        let mut left = range.len();
        assert!(left <= out.remaining_mut(), "no room for {left} bytes in the buffer to copy into");
        while left > 0 {
            let chunk = out.chunk_mut();
            let count = left.min(chunk.len());
            // SAFETY: `count` bytes remain in the checked range and fit the chunk, which is the caller's own
            // memory and so cannot overlap registered pages that are lent to no code. The bytes copied are initialised:
            // the pages were zeroed at birth. `advance_mut` covers exactly what was written.
            unsafe {
                ptr::copy_nonoverlapping(from.as_ptr(), chunk.as_mut_ptr(), count);
                out.advance_mut(count);
                from = from.add(count);
            }
            left -= count;
        }
    }

    fn checked(&self, range: &Range<usize>) -> NonNull<u8> {
        assert!(self.contains(range), "range {range:?} is outside of a region of {} bytes", self.len);
        let Memory::Own(pages) = &self.memory else { panic!("memory lent to the device is only sent") };
        // SAFETY: at most `len` from the start of pages that are at least so long.
        unsafe { pages.usable.add(range.start) }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        drop(self.end());
    }
}

// SAFETY: the pointers are this value's alone, and libibverbs ties no object to a thread.
unsafe impl Send for MemoryRegion {}

/// No flag: the device may read, and no side may write.
const READ_ONLY: i32 = 0;

/// A mapping of whole pages with one unusable page on either side.
struct Pages {
    start: NonNull<u8>,
    /// Of the whole mapping, guards included.
    len: usize,
    /// The first byte between the guards.
    usable: NonNull<u8>,
}

impl Pages {
    /// Maps room for at least `len` bytes, zeroed.
    fn map(len: usize) -> io::Result<Self> {
        let page = sys::page_size();
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let usable_len = len.max(1).checked_next_multiple_of(page).ok_or_else(too_large)?;
        let len = usable_len.checked_add(2 * page).ok_or_else(too_large)?;
        let start = sys::reserve(len)?;
        // SAFETY: one page into a mapping of three or more.
        let usable = unsafe { start.add(page) };
        // Unmaps it if what follows fails.
        let pages = Self { start, len, usable };
        // SAFETY: the pages between the guards of the mapping just made.
        unsafe { sys::make_usable(usable, usable_len) }?;
        pages.leave_out_of_dumps(usable_len);
        Ok(pages)
    }

    fn leave_out_of_dumps(&self, usable: usize) {
        // SAFETY: the usable part of the caller's own mapping, as `map` made it.
        if let Err(error) = unsafe { sys::leave_out_of_dumps(self.usable, usable) } {
            tracing::debug!(%error, "registered memory will be part of core dumps");
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`, unmapped here only; the registration over it ended before (field order of
        // `MemoryRegion`).
        log_teardown("munmap", unsafe { sys::unmap(self.start, self.len) });
    }
}

/// The error of memory that cannot be had or pinned.
fn refusal(len: u32) -> impl Fn(io::Error) -> TransportError {
    move |source| TransportError::Memory {
        bytes: u64::from(len),
        limit: memlock_limit(),
        source: source.into(),
    }
}

/// One connection's protection domain. A peer's key opens regions of its own connection only, because no other
/// connection shares the domain.
pub(super) struct ProtectionDomain {
    raw: NonNull<ibv_pd>,
}

impl ProtectionDomain {
    /// Makes one on the device that `id` is bound to.
    ///
    /// # Safety
    /// The identifier outlives the domain: it keeps the device open.
    pub(super) unsafe fn new(id: &CmId) -> Result<Self, TransportError> {
        // SAFETY: the identifier keeps its device open, and the domain dies first, by the contract.
        let raw = unsafe { sys::alloc_pd(id.device()) }.map_err(failed("ibv_alloc_pd"))?;
        Ok(Self { raw })
    }

    pub(super) fn raw(&self) -> NonNull<ibv_pd> {
        self.raw
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed here only.
        log_teardown("ibv_dealloc_pd", unsafe { sys::dealloc_pd(self.raw) });
    }
}

// SAFETY: the pointer is this value's alone, and libibverbs ties no object to a thread.
unsafe impl Send for ProtectionDomain {}

#[cfg(test)]
mod tests;
