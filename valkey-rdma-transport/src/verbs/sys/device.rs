//! The library and its devices.

use std::ffi::CStr;
use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Once;

use rdma_sys::{ibv_async_event, ibv_context, ibv_device_attr, ibv_port_attr};

use super::system::set_nonblocking;
use super::{or_errno, or_number};
use crate::device::DeviceLimits;
use crate::verbs::translate::{self, AsyncNotice};

/// Makes `fork` safe for registered memory, once. To be called before any other verb.
///
/// Kernels from 5.12 on copy pinned pages for the child at the fork, and need nothing; the library knows (it asks
/// the kernel), and then leaves out the marking of pages that costs a system call per region.
pub(in crate::verbs) fn fork_init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: takes no arguments; `Once` keeps a second thread out, and every path to other verbs comes
        // through here first: by way of an event channel or of `device_count`.
        let result = or_number(unsafe { rdma_sys::ibv_fork_init() });
        // SAFETY: takes no arguments and reads the outcome of the call above.
        let status = unsafe { rdma_sys::ibv_is_fork_initialized() };
        match (result, status) {
            (_, rdma_sys::IBV_FORK_UNNEEDED) => tracing::debug!("fork: this kernel keeps pinned pages apart"),
            (Ok(()), rdma_sys::IBV_FORK_ENABLED) => {
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
    fork_init();
    let mut count = 0;
    // SAFETY: `count` is ours to write; the list is freed below.
    let list = unsafe { rdma_sys::ibv_get_device_list(&mut count) };
    if list.is_null() {
        return 0;
    }
    // SAFETY: the list just made, freed once. We kept no pointer out of it.
    unsafe { rdma_sys::ibv_free_device_list(list) };
    usize::try_from(count).unwrap_or(0)
}

/// Makes librdmacm look for devices: it closes those that are gone, as soon as nothing uses them.
pub(in crate::verbs) fn look_for_devices() {
    // SAFETY: the count may be left out.
    let list = unsafe { rdma_sys::rdma_get_devices(ptr::null_mut()) };
    if !list.is_null() {
        // SAFETY: the list just made, freed once. We kept no pointer out of it.
        unsafe { rdma_sys::rdma_free_devices(list) };
    }
}

/// The name of a device, such as `rxe0`.
pub(in crate::verbs) unsafe fn device_name(context: NonNull<ibv_context>) -> String {
    // SAFETY: a live context's device is live, and its name is a C string inside of it that never changes; we copy.
    let name = unsafe { CStr::from_ptr(rdma_sys::ibv_get_device_name(context.as_ref().device)) };
    name.to_string_lossy().into_owned()
}

/// What a port can do and does now.
pub(in crate::verbs) unsafe fn query_port(
    context: NonNull<ibv_context>,
    port: u8,
) -> io::Result<ibv_port_attr> {
    // SAFETY: plain integers, for which all zeroes is a value.
    let mut attr: ibv_port_attr = unsafe { mem::zeroed() };
    // SAFETY: the context is live, `attr` is ours to write.
    or_number(unsafe { rdma_sys::___ibv_query_port(context.as_ptr(), port, &mut attr) })?;
    Ok(attr)
}

/// What a device can do at most.
pub(in crate::verbs) unsafe fn query_device(context: NonNull<ibv_context>) -> io::Result<DeviceLimits> {
    // SAFETY: plain integers, for which all zeroes is a value.
    let mut attr: ibv_device_attr = unsafe { mem::zeroed() };
    // SAFETY: the context is live, `attr` is ours to write.
    or_number(unsafe { rdma_sys::ibv_query_device(context.as_ptr(), &mut attr) })?;
    // SAFETY: live; the field never changes.
    let vectors = unsafe { context.as_ref().num_comp_vectors };
    let count = |value: i32| u32::try_from(value).unwrap_or(0);
    Ok(DeviceLimits {
        queue_depth: count(attr.max_qp_wr),
        completion_depth: count(attr.max_cqe),
        completion_vectors: count(vectors),
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

/// `struct ibv_async_event`, with the number of the event as C has it: an `enum` of ours must not hold a number
/// that a newer library may send.
#[repr(C)]
struct RawAsyncEvent {
    /// A pointer, or the number of a port.
    element: u64,
    number: u32,
}

const _: () = assert!(size_of::<RawAsyncEvent>() == size_of::<ibv_async_event>());
const _: () = assert!(mem::offset_of!(RawAsyncEvent, number) == mem::offset_of!(ibv_async_event, event_type));

/// An asynchronous event that is to be acknowledged: until then, destroying the object it is about blocks.
pub(in crate::verbs) struct AsyncEvent(RawAsyncEvent);

impl AsyncEvent {
    /// What it means.
    pub(in crate::verbs) fn notice(&self) -> AsyncNotice {
        translate::async_notice(self.0.number, self.0.element)
    }

    /// # Safety
    /// The device it came from is open.
    pub(in crate::verbs) unsafe fn acknowledge(mut self) {
        // SAFETY: filled by the call that took it, and acknowledged once. What it is about is live, as its
        // destruction waits for this.
        unsafe { rdma_sys::ibv_ack_async_event((&raw mut self.0).cast()) };
    }
}

/// Takes one asynchronous event. Fails with [`io::ErrorKind::WouldBlock`] if there is none.
pub(in crate::verbs) unsafe fn get_async_event(context: NonNull<ibv_context>) -> io::Result<AsyncEvent> {
    let mut event = RawAsyncEvent { element: 0, number: 0 };
    // SAFETY: the context is live; `event` has the shape that C expects and is ours to write.
    or_errno(unsafe { rdma_sys::ibv_get_async_event(context.as_ptr(), (&raw mut event).cast()) })?;
    Ok(AsyncEvent(event))
}
