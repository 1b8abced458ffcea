//! The library, its devices, and their protection domains and memory regions.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Once;
use std::{io, mem};

use super::bindings::{
    self, ibv_async_event, ibv_context, ibv_device_attr, ibv_fork_status, ibv_mr, ibv_pd, ibv_port_attr,
};
use super::convert::{self, AsyncNotice};
use super::system::set_nonblocking;
use super::{non_null, or_errno, or_number};
use crate::device::DeviceLimits;

/// Makes `fork` safe for registered memory, once. To be called before any other verb.
///
/// Kernels from 5.12 on copy pinned pages for the child at the fork, and need nothing; the library knows (it asks
/// the kernel), and then leaves out the marking of pages that costs a system call per region.
pub(super) fn fork_init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: takes no arguments; `Once` keeps a second thread out, and every path to other verbs comes
        // through `load`, which calls this.
        let result = or_number(unsafe { bindings::ibv_fork_init() });
        // SAFETY: takes no arguments and reads the outcome of the call above.
        let status = unsafe { bindings::ibv_is_fork_initialized() };
        match (result, status) {
            (_, ibv_fork_status::IBV_FORK_UNNEEDED) => {
                tracing::debug!("fork: this kernel keeps pinned pages apart")
            }
            (Ok(()), ibv_fork_status::IBV_FORK_ENABLED) => {
                tracing::debug!("fork: registered pages are kept from children")
            }
            (result, _) => {
                let error = result.err();
                tracing::warn!(?error, "ibv_fork_init failed: do not fork, a child may corrupt RDMA memory");
            }
        }
    });
}

/// How many RDMA devices this machine has. Also where nothing else could be done before, for want of one.
pub(in crate::verbs) fn device_count() -> usize {
    let mut count = 0;
    // SAFETY: `count` is ours to write; the list is freed below.
    let list = unsafe { bindings::ibv_get_device_list(&mut count) };
    if list.is_null() {
        return 0;
    }
    // SAFETY: the list just made, freed once. We kept no pointer out of it.
    unsafe { bindings::ibv_free_device_list(list) };
    usize::try_from(count).unwrap_or(0)
}

/// Makes librdmacm look for devices: it closes those that are gone, as soon as nothing uses them.
pub(in crate::verbs) fn look_for_devices() {
    // SAFETY: the count may be left out.
    let list = unsafe { bindings::rdma_get_devices(ptr::null_mut()) };
    if !list.is_null() {
        // SAFETY: the list just made, freed once. We kept no pointer out of it.
        unsafe { bindings::rdma_free_devices(list) };
    }
}

/// The name of a device, such as `rxe0`.
pub(in crate::verbs) unsafe fn device_name(context: NonNull<ibv_context>) -> String {
    // SAFETY: a live context's device is live, and its name is a C string inside of it that never changes; we copy.
    let name = unsafe { CStr::from_ptr(bindings::ibv_get_device_name(context.as_ref().device)) };
    name.to_string_lossy().into_owned()
}

/// What a port can do and does now.
pub(in crate::verbs) unsafe fn query_port(
    context: NonNull<ibv_context>,
    port: u8,
) -> io::Result<ibv_port_attr> {
    // SAFETY: plain integers, for which all zeroes is a value.
    let mut attr: ibv_port_attr = unsafe { mem::zeroed() };
    // SAFETY: the context is live, `attr` is ours to write. The function fills the fields that the first version of the
    // structure had, which is what it is declared with. We read none of the later ones.
    or_number(unsafe { bindings::ibv_query_port(context.as_ptr(), port, (&raw mut attr).cast()) })?;
    Ok(attr)
}

/// What a device can do at most.
pub(in crate::verbs) unsafe fn query_device(context: NonNull<ibv_context>) -> io::Result<DeviceLimits> {
    // SAFETY: plain integers, for which all zeroes is a value.
    let mut attr: ibv_device_attr = unsafe { mem::zeroed() };
    // SAFETY: the context is live, `attr` is ours to write.
    or_number(unsafe { bindings::ibv_query_device(context.as_ptr(), &mut attr) })?;
    // SAFETY: live; the field never changes.
    let vectors = unsafe { context.as_ref().num_comp_vectors };
    let count = |value: i32| u32::try_from(value).unwrap_or(0);
    Ok(DeviceLimits {
        queue_depth: count(attr.max_qp_wr),
        completion_depth: count(attr.max_cqe),
        completion_vectors: count(vectors),
        read_depth: attr.max_qp_rd_atom.min(attr.max_qp_init_rd_atom).clamp(0, u8::MAX.into()) as u8,
    })
}

/// The descriptor from which a device's asynchronous events are read, in non-blocking mode from now on.
///
/// # Safety
/// The context stays open as long as the descriptor is used.
pub(in crate::verbs) unsafe fn async_fd(context: NonNull<ibv_context>) -> io::Result<BorrowedFd<'static>> {
    // SAFETY: live; the field never changes.
    let fd = unsafe { context.as_ref().async_fd };
    set_nonblocking(fd)?;
    // SAFETY: open as long as it is used, by the contract.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// An asynchronous event that is to be acknowledged: until then, destroying the object it is about blocks.
pub(in crate::verbs) struct UnacknowledgedEvent(ibv_async_event);

impl UnacknowledgedEvent {
    /// What it means.
    pub(in crate::verbs) fn notice(&self) -> AsyncNotice {
        convert::async_notice(&self.0)
    }

    /// # Safety
    /// The device it came from is open.
    pub(in crate::verbs) unsafe fn acknowledge(mut self) {
        // SAFETY: filled by the call that took it, and acknowledged once. What it is about is live, as its
        // destruction waits for this.
        unsafe { bindings::ibv_ack_async_event(&mut self.0) };
    }
}

/// Takes one asynchronous event. Fails with [`io::ErrorKind::WouldBlock`] if there is none.
pub(in crate::verbs) unsafe fn get_async_event(
    context: NonNull<ibv_context>,
) -> io::Result<UnacknowledgedEvent> {
    // SAFETY: pointers and integers, for which all zeroes is a value.
    let mut event: ibv_async_event = unsafe { mem::zeroed() };
    // SAFETY: the context is live; `event` is ours to write.
    or_errno(unsafe { bindings::ibv_get_async_event(context.as_ptr(), &mut event) })?;
    Ok(UnacknowledgedEvent(event))
}

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
