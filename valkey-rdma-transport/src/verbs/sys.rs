//! The C functions of libibverbs, librdmacm and libc that we use, one thin wrapper each, in one file per kind of
//! object.
//!
//! `bindings` is what the headers declare, generated; `library` loads what it declares. The functions that the headers
//! have inline (posting, polling, arming) are called through the device's table of operations, as the headers do.
//!
//! A wrapper turns C's error convention (`NULL`, `-1` with `errno`, or the number itself, as the manual page of
//! each has it) into [`io::Result`], and keeps unions and nullable pointers inside. It owns nothing and decides
//! nothing.
//!
//! # Safety
//! For every `unsafe fn` here: each pointer argument is *live*, that is, it was made by the function here that
//! makes such objects and has not been destroyed. What is asked beyond that stands at the function.

mod bindings;
mod cm;
pub(super) mod convert;
mod device;
mod library;
mod queues;
mod system;
mod table;

use std::io;
use std::ptr::NonNull;

pub(super) use self::bindings::*;
pub(super) use self::cm::*;
pub(super) use self::device::*;
pub(super) use self::library::load;
pub(super) use self::queues::*;
pub(super) use self::system::*;

/// `NULL` with `errno`.
fn non_null<T>(pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}

/// Negative with `errno`: librdmacm, and system calls.
fn or_errno(ret: i32) -> io::Result<()> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A driver without an operation that every driver has. The header's inline functions would call `NULL`.
fn unsupported() -> io::Error {
    io::Error::from_raw_os_error(libc::EOPNOTSUPP)
}

/// 0, or the error number itself: most of libibverbs. Some providers return it negated, and some -1.
fn or_number(ret: i32) -> io::Result<()> {
    match ret {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        number => Err(io::Error::from_raw_os_error(number.saturating_abs())),
    }
}

#[cfg(all(test, feature = "rdma-sys"))]
mod tests {
    mod compare_bindings;
}
