//! The functions of `include/valkey_rdma.h`.
//!
//! Each checks what C passes as far as that can be checked, and lets no panic out.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use valkey_rdma_transport::blocking::Listener;
use valkey_rdma_transport::bridge;

use crate::connection::{self, Failure};
use crate::error;

/// # Safety
/// `url` is null or a C string.
// SAFETY: no other symbol of this name is linked: the prefix is the library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn valkey_rdma_connect(url: *const c_char) -> c_int {
    // SAFETY: the same as ours.
    let url = unsafe { text(url) };
    attempt(|| connection::connect(url?)).map_or(-1, IntoRawFd::into_raw_fd)
}

/// # Safety
/// `fd` is the caller's to close.
// SAFETY: as for `valkey_rdma_connect`.
#[unsafe(no_mangle)]
unsafe extern "C" fn valkey_rdma_close(fd: c_int) -> c_int {
    if fd < 0 {
        return attempt(|| Err::<(), _>(format!("{fd} is not a descriptor").into())).map_or(-1, |()| 0);
    }
    // SAFETY: the caller owns it, and gives it away.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    attempt(|| connection::close(fd)).map_or(-1, |()| 0)
}

/// # Safety
/// `url` is null or a C string.
// SAFETY: as for `valkey_rdma_connect`.
#[unsafe(no_mangle)]
unsafe extern "C" fn valkey_rdma_listen(url: *const c_char) -> *mut Listener {
    // SAFETY: the same as ours.
    let url = unsafe { text(url) };
    attempt(|| connection::listen(url?)).map_or(ptr::null_mut(), |listener| Box::into_raw(Box::new(listener)))
}

/// # Safety
/// `listener` is null, or came from `valkey_rdma_listen` and was not closed.
// SAFETY: as for `valkey_rdma_connect`.
#[unsafe(no_mangle)]
unsafe extern "C" fn valkey_rdma_listener_port(listener: *const Listener) -> c_int {
    // SAFETY: live, by the contract, and never changed but behind its own lock.
    let listener = unsafe { listener.as_ref() }.ok_or_else(no_listener);
    attempt(|| Ok(listener?.local_addr().port())).map_or(-1, c_int::from)
}

/// # Safety
/// `listener` is null, or came from `valkey_rdma_listen` and is not closed before this returns.
// SAFETY: as for `valkey_rdma_connect`.
#[unsafe(no_mangle)]
unsafe extern "C" fn valkey_rdma_accept(listener: *const Listener) -> c_int {
    // SAFETY: live, by the contract, and never changed but behind its own lock.
    let listener = unsafe { listener.as_ref() }.ok_or_else(no_listener);
    attempt(|| Ok(bridge::accept(listener?)?)).map_or(-1, IntoRawFd::into_raw_fd)
}

/// # Safety
/// `listener` is null, or came from `valkey_rdma_listen`, was not closed, and is in use by no other thread.
// SAFETY: as for `valkey_rdma_connect`.
#[unsafe(no_mangle)]
unsafe extern "C" fn valkey_rdma_listener_close(listener: *mut Listener) {
    if listener.is_null() {
        return;
    }
    // SAFETY: made by `Box::into_raw` in `valkey_rdma_listen`, and given back once, by the contract.
    let listener = unsafe { Box::from_raw(listener) };
    attempt(|| {
        drop(listener);
        Ok(())
    });
}

// SAFETY: as for `valkey_rdma_connect`.
#[unsafe(no_mangle)]
extern "C" fn valkey_rdma_last_error() -> *const c_char {
    error::last(CStr::as_ptr)
}

/// Runs `step`. `None`: it failed, and the error is kept.
fn attempt<T>(step: impl FnOnce() -> Result<T, Failure>) -> Option<T> {
    // What a panic leaves behind is not looked at again, but for the listener, whose lock is taken all the same.
    let outcome = catch_unwind(AssertUnwindSafe(step));
    let outcome = outcome.unwrap_or_else(|_| Err("a bug in libvalkey_rdma: the call has panicked".into()));
    outcome.inspect_err(|failure| error::keep(&**failure)).ok()
}

fn no_listener() -> Failure {
    "the listener is NULL".into()
}

/// # Safety
/// `text` is null or a C string, which stays as it is for as long as the result is used.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err("the URL is NULL".into());
    }
    // SAFETY: a C string, by the contract.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(text.to_str().map_err(|error| format!("the URL is not UTF-8: {error}"))?)
}
