//! C's ways to report a failure, as [`io::Result`].

use std::io;
use std::ptr::NonNull;

/// `NULL` with `errno`.
pub(super) fn non_null<T>(pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}

/// Negative with `errno`: librdmacm, and system calls.
pub(super) fn or_errno(ret: i32) -> io::Result<()> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A driver without an operation that every driver has. The header's inline functions would call `NULL`.
pub(super) fn unsupported() -> io::Error {
    io::Error::from_raw_os_error(libc::EOPNOTSUPP)
}

/// 0, or the error number itself: most of libibverbs. Some providers return it negated, and some -1.
pub(super) fn or_number(ret: i32) -> io::Result<()> {
    match ret {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        number => Err(io::Error::from_raw_os_error(number.saturating_abs())),
    }
}
