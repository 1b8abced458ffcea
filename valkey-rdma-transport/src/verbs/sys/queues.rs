//! Completion channels and queues, and queue pairs: a wrapper for each C call. `verbs/qp.rs` owns the queue pair and builds the
//! work requests.

use std::mem::{self, MaybeUninit};
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::{io, slice};

use super::bindings::{
    self, ibv_comp_channel, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap,
    ibv_qp_init_attr, ibv_qp_type, ibv_recv_wr, ibv_send_wr, ibv_wc, rdma_cm_id,
};
use super::system::set_nonblocking;
use super::{non_null, or_errno, or_number, unsupported};

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
/// `count` events were taken for this queue and not yet acknowledged.
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
    // A negative answer does not name an error (`ibv_poll_cq(3)`).
    let filled = usize::try_from(filled)
        .map_err(|_| io::Error::other(format!("the completion queue cannot be read ({filled})")))?;
    // SAFETY: the call filled the first `filled` entries, which it keeps within the room it was given.
    Ok(unsafe { slice::from_raw_parts(buffer.as_ptr().cast(), filled.min(buffer.len())) })
}

/// Makes the identifier's queue pair, in the state where receives can be posted, and says what was granted.
///
/// # Safety
/// Domain and queue belong to the device that the identifier is bound to, and outlive the queue pair.
pub(in crate::verbs) unsafe fn create_qp(
    id: NonNull<rdma_cm_id>,
    pd: NonNull<ibv_pd>,
    cq: NonNull<ibv_cq>,
    wanted: ibv_qp_cap,
) -> io::Result<(NonNull<ibv_qp>, ibv_qp_cap)> {
    let mut attr = ibv_qp_init_attr {
        qp_context: ptr::null_mut(),
        send_cq: cq.as_ptr(),
        recv_cq: cq.as_ptr(),
        srq: ptr::null_mut(),
        cap: wanted,
        qp_type: ibv_qp_type::IBV_QPT_RC,
        sq_sig_all: 0,
    };
    // SAFETY: all live, by the contract; the attributes are read and written during the call only.
    or_errno(unsafe { bindings::rdma_create_qp(id.as_ptr(), pd.as_ptr(), &mut attr) })?;
    // SAFETY: the id is live, and the call has just set the field.
    let qp = non_null(unsafe { id.as_ref().qp })?;
    Ok((qp, attr.cap))
}

/// Sets how long a sender who finds no receive posted is told to wait, by its code (InfiniBand specification, table
/// "Encoding for RNR NAK Timer Field").
///
/// # Safety
/// The queue pair is connected.
pub(in crate::verbs) unsafe fn set_min_rnr_timer(qp: NonNull<ibv_qp>, code: u8) -> io::Result<()> {
    // SAFETY: integers, for which all zeroes is a value.
    let mut attr: ibv_qp_attr = unsafe { mem::zeroed() };
    attr.min_rnr_timer = code;
    let mask = ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER;
    // SAFETY: the queue pair is live; the attributes are read during the call.
    or_number(unsafe { bindings::ibv_modify_qp(qp.as_ptr(), &mut attr, mask as i32) })
}

/// Some attributes of a queue pair, as the device has them. Not every driver can say.
pub(in crate::verbs) unsafe fn query_qp(
    qp: NonNull<ibv_qp>,
    mask: ibv_qp_attr_mask::Type,
) -> io::Result<ibv_qp_attr> {
    // SAFETY: integers, for which all zeroes is a value.
    let mut attr: ibv_qp_attr = unsafe { mem::zeroed() };
    // SAFETY: integers and null pointers, for which all zeroes is a value.
    let mut init: ibv_qp_init_attr = unsafe { mem::zeroed() };
    // SAFETY: the queue pair is live; both are ours to write.
    or_number(unsafe { bindings::ibv_query_qp(qp.as_ptr(), &mut attr, mask as i32, &mut init) })?;
    Ok(attr)
}

/// Moves a queue pair to error state.
#[cfg(test)]
pub(in crate::verbs) unsafe fn set_error_state(qp: NonNull<ibv_qp>) -> io::Result<()> {
    // SAFETY: integers, for which all zeroes is a value.
    let mut attr: ibv_qp_attr = unsafe { mem::zeroed() };
    attr.qp_state = bindings::ibv_qp_state::IBV_QPS_ERR;
    let mask = ibv_qp_attr_mask::IBV_QP_STATE;
    // SAFETY: the queue pair is live; the attributes are read during the call.
    or_number(unsafe { bindings::ibv_modify_qp(qp.as_ptr(), &mut attr, mask as i32) })
}

/// Destroys the identifier's queue pair. `rdma_destroy_qp` would do the same and hide the outcome.
///
/// # Safety
/// `qp` is the identifier's; the caller never uses it again, even if this fails.
pub(in crate::verbs) unsafe fn destroy_qp(
    mut id: NonNull<rdma_cm_id>,
    qp: NonNull<ibv_qp>,
) -> io::Result<()> {
    // SAFETY: live and the identifier's only user, by the contract; the library must not find it there again.
    unsafe { id.as_mut().qp = ptr::null_mut() };
    // SAFETY: live, by the contract.
    or_number(unsafe { bindings::ibv_destroy_qp(qp.as_ptr()) })
}

/// A send work request with nothing in it.
pub(in crate::verbs) fn blank_send() -> ibv_send_wr {
    // SAFETY: integers, raw pointers and unions of these, for all of which zeroes are a value.
    unsafe { mem::zeroed() }
}

/// Posts a chain of sends with one doorbell.
///
/// # Safety
/// `first` and what it links to are valid during the call, ends with `NULL`, and every request with the inline
/// flag names memory that may be read.
pub(in crate::verbs) unsafe fn post_send(qp: NonNull<ibv_qp>, first: *mut ibv_send_wr) -> io::Result<()> {
    let mut refused = ptr::null_mut();
    // SAFETY: live, and its context with it, by the contract.
    let post = unsafe { (*qp.as_ref().context).ops.post_send }.ok_or_else(unsupported)?;
    // SAFETY: the queue pair is live and the chain valid, by the contract. Memory that is not inlined is reached
    // by the device alone, through a local key that covers registered memory only.
    or_number(unsafe { post(qp.as_ptr(), first, &mut refused) })
}

/// Posts a chain of receives.
///
/// # Safety
/// `first` and what it links to are valid during the call, and ends with `NULL`.
pub(in crate::verbs) unsafe fn post_recv(qp: NonNull<ibv_qp>, first: *mut ibv_recv_wr) -> io::Result<()> {
    let mut refused = ptr::null_mut();
    // SAFETY: as for `post_send`.
    let post = unsafe { (*qp.as_ref().context).ops.post_recv }.ok_or_else(unsupported)?;
    // SAFETY: as for `post_send`.
    or_number(unsafe { post(qp.as_ptr(), first, &mut refused) })
}
