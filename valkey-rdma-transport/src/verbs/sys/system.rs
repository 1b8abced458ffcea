//! What is asked of the operating system itself: descriptors, mappings, the size of a page.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::ptr::NonNull;

use super::{non_null, or_errno};

pub(super) fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: reads flags of a descriptor; no memory involved.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    or_errno(flags)?;
    // SAFETY: sets flags of a descriptor; no memory involved.
    or_errno(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) })
}

/// The size of a page of memory, in bytes.
pub(in crate::verbs) fn page_size() -> usize {
    // SAFETY: reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("the system knows its page size")
}

/// Reserves `len` bytes of address space in which nothing can be read or written.
pub(in crate::verbs) fn reserve(len: usize) -> io::Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping where the system likes; it replaces none.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    non_null(start.cast())
}

/// Makes reserved pages readable and writable, zeroed.
///
/// # Safety
/// The range is part of a mapping of the caller's own, starting at a page.
pub(in crate::verbs) unsafe fn make_usable(start: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: the caller's own mapping, by the contract.
    or_errno(unsafe { libc::mprotect(start.as_ptr().cast(), len, libc::PROT_READ | libc::PROT_WRITE) })
}

/// Keeps pages out of core dumps: they hold users' data.
///
/// # Safety
/// As for [`make_usable`].
pub(in crate::verbs) unsafe fn leave_out_of_dumps(start: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: the caller's own mapping, by the contract; the advice changes no contents.
    or_errno(unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTDUMP) })
}

/// # Safety
/// The range is a mapping of the caller's own, whole, and nothing points into it any more.
pub(in crate::verbs) unsafe fn unmap(start: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: the caller's own and unused, by the contract.
    or_errno(unsafe { libc::munmap(start.as_ptr().cast(), len) })
}

/// Waits until one of two descriptors can be read or has ended, and says which.
pub(in crate::verbs) fn wait_readable(
    first: BorrowedFd<'_>,
    second: BorrowedFd<'_>,
) -> io::Result<[bool; 2]> {
    let watched = |fd: BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut fds = [watched(first), watched(second)];
    // SAFETY: `fds` is ours to write, and has as many entries as we say.
    or_errno(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) })?;
    Ok(fds.map(|fd| fd.revents != 0))
}
