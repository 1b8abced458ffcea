//! Protection domains and memory regions.

use std::io;
use std::ptr::NonNull;

use super::bindings::{self, ibv_context, ibv_mr, ibv_pd};

use super::outcome::{non_null, or_number};

pub(in crate::verbs) unsafe fn alloc_pd(context: NonNull<ibv_context>) -> io::Result<NonNull<ibv_pd>> {
    // SAFETY: live, by the contract.
    non_null(unsafe { bindings::ibv_alloc_pd(context.as_ptr()) })
}

/// # Safety
/// The caller never uses the domain again, even if this fails.
pub(in crate::verbs) unsafe fn dealloc_pd(pd: NonNull<ibv_pd>) -> io::Result<()> {
    // SAFETY: live, by the contract.
    or_number(unsafe { bindings::ibv_dealloc_pd(pd.as_ptr()) })
}

/// # Safety
/// `start..start + len` is mapped and stays so until the region is deregistered.
pub(in crate::verbs) unsafe fn reg_mr(
    pd: NonNull<ibv_pd>,
    start: NonNull<u8>,
    len: usize,
    access: i32,
) -> io::Result<NonNull<ibv_mr>> {
    // SAFETY: the domain is live and the memory mapped, by the contract.
    non_null(unsafe { bindings::ibv_reg_mr(pd.as_ptr(), start.as_ptr().cast(), len, access) })
}

/// The region's local and remote key.
pub(in crate::verbs) unsafe fn mr_keys(mr: NonNull<ibv_mr>) -> (u32, u32) {
    // SAFETY: live; the fields never change.
    unsafe { (mr.as_ref().lkey, mr.as_ref().rkey) }
}

/// # Safety
/// The caller never uses the region again, even if this fails.
pub(in crate::verbs) unsafe fn dereg_mr(mr: NonNull<ibv_mr>) -> io::Result<()> {
    // SAFETY: live, by the contract.
    or_number(unsafe { bindings::ibv_dereg_mr(mr.as_ptr()) })
}
