//! The protection domain: what binds a connection's memory to its queue pair and to no other.

use std::ptr::NonNull;

use super::sys::ibv_pd;

use super::cm::CmId;
use super::{failed, log_teardown, sys};
use crate::error::TransportError;

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
