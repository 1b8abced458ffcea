//! What numbers of the system mean here: a failed call, a status of the connection manager, a limit.
//! The texts of failed completions are in `valkey-rdma-proto/src/work.rs`: `FailureStatus`.

use std::io;

/// What to do about an OS error of a call into the device, where the number has a usual cause.
pub(super) fn device_hint(error: &io::Error) -> &'static str {
    // `io::ErrorKind` has no name for this one.
    const ENODEV: i32 = 19;

    match (error.raw_os_error(), error.kind()) {
        (None, _) => "",
        (_, io::ErrorKind::OutOfMemory) => {
            " (the device has no queue pair, completion queue or memory left: compare max_qp, max_cq and max_mr of \
             `ibv_devinfo -v`; or the memlock limit is too low: `ulimit -l`. Hold fewer connections, or ask for shallower \
             queues: send_depth, receive_depth)"
        }
        (_, io::ErrorKind::InvalidInput) => {
            " (the device or its driver does not accept a setting: compare send_depth, receive_depth and max_inline with \
             `ibv_devinfo -v`, or leave them at their defaults)"
        }
        (_, io::ErrorKind::PermissionDenied) => {
            " (this user may not use the device: check the permissions of /dev/infiniband/* and the memlock limit, \
             `ulimit -l`)"
        }
        (_, io::ErrorKind::Unsupported) => {
            " (the device, its driver or the kernel cannot do this: update rdma-core and the kernel)"
        }
        (Some(ENODEV), _) => " (the device is gone, or its driver is not loaded: check `rdma link`)",
        _ => "",
    }
}

/// A status of the connection manager: a negated number of the OS, or a number of its own.
pub(super) fn status_text(status: i32) -> String {
    match status.checked_neg().filter(|number| *number > 0) {
        Some(number) => {
            format!("{}, connection manager status {status}", io::Error::from_raw_os_error(number))
        }
        None => format!("connection manager status {status}"),
    }
}

/// A limit in bytes, where there is one.
pub(super) fn limit_text(limit: Option<u64>) -> String {
    limit.map_or_else(|| "none".to_owned(), |bytes| format!("{bytes} bytes"))
}
