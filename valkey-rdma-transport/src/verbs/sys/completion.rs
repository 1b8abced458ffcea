//! Completion channels and queues.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;
use std::ptr::NonNull;
use std::slice;

use super::bindings::{self, ibv_comp_channel, ibv_context, ibv_cq, ibv_wc};

use super::outcome::{non_null, or_errno, or_number, unsupported};
use super::system::set_nonblocking;

/// `ibv_create_comp_channel(3)`, in non-blocking mode.
pub(in crate::verbs) unsafe fn create_comp_channel(
    context: NonNull<ibv_context>,
) -> io::Result<NonNull<ibv_comp_channel>> {
    // SAFETY: live, by the contract.
    let channel = non_null(unsafe { bindings::ibv_create_comp_channel(context.as_ptr()) })?;
    // SAFETY: just made.
    if let Err(error) = set_nonblocking(unsafe { comp_channel_fd(channel) }) {
        // SAFETY: just made, and held by no other value. Of the two failures the first is the one to report.
        let _ = unsafe { destroy_comp_channel(channel) };
        return Err(error);
    }
    Ok(channel)
}

/// # Safety
/// The caller never uses the channel again, even if this fails.
pub(in crate::verbs) unsafe fn destroy_comp_channel(channel: NonNull<ibv_comp_channel>) -> io::Result<()> {
    // SAFETY: live, by the contract.
    or_number(unsafe { bindings::ibv_destroy_comp_channel(channel.as_ptr()) })
}

pub(in crate::verbs) unsafe fn comp_channel_fd(channel: NonNull<ibv_comp_channel>) -> RawFd {
    // SAFETY: live; the field never changes.
    unsafe { channel.as_ref().fd }
}

/// Makes a completion queue of at least `depth` entries that reports to `channel`, by interrupts of `vector`.
pub(in crate::verbs) unsafe fn create_cq(
    context: NonNull<ibv_context>,
    depth: i32,
    channel: NonNull<ibv_comp_channel>,
    vector: i32,
) -> io::Result<NonNull<ibv_cq>> {
    // SAFETY: both live, by the contract; the user context is for us alone and unused. The call
    // checks the vector.
    non_null(unsafe {
        bindings::ibv_create_cq(context.as_ptr(), depth, ptr::null_mut(), channel.as_ptr(), vector)
    })
}

/// How many entries the queue really has.
pub(in crate::verbs) unsafe fn cq_depth(cq: NonNull<ibv_cq>) -> u32 {
    // SAFETY: live; the field changes only by a resize, which we never do.
    u32::try_from(unsafe { cq.as_ref().cqe }).unwrap_or(0)
}

/// # Safety
/// All its events were acknowledged (else this blocks for ever); the caller never uses the queue again, even if
/// this fails.
pub(in crate::verbs) unsafe fn destroy_cq(cq: NonNull<ibv_cq>) -> io::Result<()> {
    // SAFETY: live, by the contract.
    or_number(unsafe { bindings::ibv_destroy_cq(cq.as_ptr()) })
}

/// Asks for an event at the next completion, solicited or not.
pub(in crate::verbs) unsafe fn req_notify_cq(cq: NonNull<ibv_cq>) -> io::Result<()> {
    // SAFETY: live, and its context with it, by the contract.
    let request = unsafe { (*cq.as_ref().context).ops.req_notify_cq }.ok_or_else(unsupported)?;
    // SAFETY: live, by the contract.
    or_number(unsafe { request(cq.as_ptr(), 0) })
}

/// Takes one event. Fails with [`io::ErrorKind::WouldBlock`] if there is none.
pub(in crate::verbs) unsafe fn get_cq_event(channel: NonNull<ibv_comp_channel>) -> io::Result<()> {
    let mut cq = ptr::null_mut();
    let mut context = ptr::null_mut();
    // SAFETY: the channel is live, the others are ours to write; which queue it was is known to the caller.
    or_errno(unsafe { bindings::ibv_get_cq_event(channel.as_ptr(), &mut cq, &mut context) })
}

/// # Safety
/// So many events were taken for this queue and not yet acknowledged.
pub(in crate::verbs) unsafe fn ack_cq_events(cq: NonNull<ibv_cq>, count: u32) {
    // SAFETY: live, and the count is right, by the contract.
    unsafe { bindings::ibv_ack_cq_events(cq.as_ptr(), count) }
}

/// Takes completions into `buffer` and returns the filled part.
pub(in crate::verbs) unsafe fn poll_cq(
    cq: NonNull<ibv_cq>,
    buffer: &mut [MaybeUninit<ibv_wc>],
) -> io::Result<&[ibv_wc]> {
    let room = i32::try_from(buffer.len()).unwrap_or(i32::MAX);
    // SAFETY: live, and its context with it, by the contract.
    let poll = unsafe { (*cq.as_ref().context).ops.poll_cq }.ok_or_else(unsupported)?;
    // SAFETY: the queue is live and `buffer` has room for as many entries as we say.
    let filled = unsafe { poll(cq.as_ptr(), room, buffer.as_mut_ptr().cast()) };
    // A negative answer is no error number (`ibv_poll_cq(3)`).
    let filled = usize::try_from(filled)
        .map_err(|_| io::Error::other(format!("the completion queue cannot be read ({filled})")))?;
    // SAFETY: the call filled the first `filled` entries, which it keeps within the room it was given.
    Ok(unsafe { slice::from_raw_parts(buffer.as_ptr().cast(), filled.min(buffer.len())) })
}
