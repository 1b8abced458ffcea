//! The functions of `include/valkey_rdma.h`.
//!
//! Each checks what C passes as far as that can be checked, and lets no panic out.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use nix::fcntl::{FcntlArg, fcntl};
use valkey_rdma_transport::blocking::Listener;
use valkey_rdma_transport::bridge;

use crate::connection::{self, Failure};
use crate::texts;

/// # Safety
/// `url` is null or a C string.
// SAFETY: no other symbol of this name is linked: the prefix is the library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn valkey_rdma_connect(url: *const c_char) -> c_int {
    // SAFETY: the same as ours.
    let url = unsafe { text(url) };
    let connected = attempt(|| connection::connect(url?));
    connected.map_or(-1, |(fd, description)| {
        texts::keep(&texts::CONNECTION, description);
        fd.into_raw_fd()
    })
}

/// # Safety
/// `fd` is the caller's to close.
// SAFETY: as for `valkey_rdma_connect`.
#[unsafe(no_mangle)]
unsafe extern "C" fn valkey_rdma_close(fd: c_int) -> c_int {
    // SAFETY: the caller owns it, and gives it away.
    attempt(|| connection::close(unsafe { owned(fd) }?)).map_or(-1, |()| 0)
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
/// `listener` is null, or came from `valkey_rdma_listen` and is not closed before this returns.
// SAFETY: as for `valkey_rdma_connect`.
#[unsafe(no_mangle)]
unsafe extern "C" fn valkey_rdma_listener_stop(listener: *const Listener) {
    // SAFETY: live, by the contract, and never changed but behind its own lock.
    if let Some(listener) = unsafe { listener.as_ref() } {
        listener.stop();
    }
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
    texts::kept(&texts::ERROR)
}

// SAFETY: as for `valkey_rdma_connect`.
#[unsafe(no_mangle)]
extern "C" fn valkey_rdma_last_connection() -> *const c_char {
    texts::kept(&texts::CONNECTION)
}

// SAFETY: as for `valkey_rdma_connect`.
#[unsafe(no_mangle)]
extern "C" fn valkey_rdma_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no zeros"),
        };
    VERSION.as_ptr()
}

/// Runs `step`. `None`: it failed, and the error is kept.
fn attempt<T>(step: impl FnOnce() -> Result<T, Failure>) -> Option<T> {
    // What a panic leaves behind is not looked at again, but for the listener, whose lock is taken all the same.
    let outcome = catch_unwind(AssertUnwindSafe(step));
    let outcome = outcome.unwrap_or_else(|_| Err("a bug in libvalkey_rdma: the call has panicked".into()));
    outcome.inspect_err(|failure| texts::keep(&texts::ERROR, texts::with_causes(&**failure))).ok()
}

/// # Safety
/// `fd` is the caller's to give away, if it is open.
unsafe fn owned(fd: c_int) -> Result<OwnedFd, Failure> {
    // Rust ends a process that closes what is not open.
    let is_open = fd >= 0 && {
        // SAFETY: not -1. If it is not open, the one call says so.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        fcntl(fd, FcntlArg::F_GETFD).is_ok()
    };
    if !is_open {
        return Err(format!("descriptor {fd} is not open").into());
    }
    // SAFETY: open, and the caller's to give away.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
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
