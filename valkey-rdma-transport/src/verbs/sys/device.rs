//! The library and its devices.

use std::ffi::CStr;
use std::io;
use std::mem;
use std::ptr::NonNull;
use std::sync::Once;

use rdma_sys::{ibv_context, ibv_port_attr};

use super::or_number;

/// Makes `fork` safe for registered memory, once. To be called before any other verb.
pub(in crate::verbs) fn fork_init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: takes no arguments; `Once` keeps a second thread out, and every path to other verbs comes
        // through here first.
        let result = or_number(unsafe { rdma_sys::ibv_fork_init() });
        if let Err(error) = result {
            tracing::warn!(%error, "ibv_fork_init failed: forked children may corrupt RDMA memory");
        }
    });
}

/// How many RDMA devices this machine has.
pub(in crate::verbs) fn device_count() -> usize {
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
