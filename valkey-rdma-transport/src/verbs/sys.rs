//! The C functions of libibverbs, librdmacm and libc that we use, one thin wrapper each.
//!
//! A wrapper turns C's error convention (`NULL`, `-1` with `errno`, or the number itself, as the manual page of
//! each has it) into [`io::Result`], and keeps unions and nullable pointers inside. It owns nothing and decides
//! nothing.
//!
//! # Safety
//! For every `unsafe fn` here: each pointer argument is *live*, that is, it was made by the function here that
//! makes such objects and has not been destroyed. What is asked beyond that stands at the function.

use std::ffi::CStr;
use std::mem::{self, MaybeUninit};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::Once;
use std::{io, slice};

use rdma_sys::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_cap,
    ibv_qp_init_attr, ibv_qp_type, ibv_recv_wr, ibv_send_wr, ibv_wc, rdma_cm_id, rdma_conn_param,
    rdma_event_channel, rdma_port_space,
};

use super::translate::{self, EventKind};

/// Receiver-not-ready and transport retries that we ask of the connection. For RNR, 7 means without end: a peer
/// that is slow to post receives is waited for, not disconnected (`rdma_connect(3)`).
const RETRY_COUNT: u8 = 7;

/// READs and atomics in flight. This protocol has none, but some devices refuse 0.
const RESPONDER_RESOURCES: u8 = 1;

// `rdma/rdma_cma.h`: enumerators without a type name, which the bindings leave out.
const RDMA_OPTION_ID: i32 = 0;
const RDMA_OPTION_ID_AFONLY: i32 = 2;

// --- Error conventions -------------------------------------------------------------------------------------------

/// `NULL` with `errno`.
fn non_null<T>(pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}

/// Negative with `errno`: librdmacm, and system calls.
fn or_errno(ret: i32) -> io::Result<()> {
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// 0, or the error number itself: most of libibverbs. Some providers return it negated, and some -1.
fn or_number(ret: i32) -> io::Result<()> {
    match ret {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        number => Err(io::Error::from_raw_os_error(number.saturating_abs())),
    }
}

// --- The library and its devices ---------------------------------------------------------------------------------

/// Makes `fork` safe for registered memory, once. To be called before any other verb.
pub(super) fn fork_init() {
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
pub(super) fn device_count() -> usize {
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
pub(super) unsafe fn device_name(context: NonNull<ibv_context>) -> String {
    // SAFETY: a live context's device is live, and its name is a C string inside of it that never changes; we copy.
    let name = unsafe { CStr::from_ptr(rdma_sys::ibv_get_device_name(context.as_ref().device)) };
    name.to_string_lossy().into_owned()
}

/// What a port can do and does now.
pub(super) unsafe fn query_port(context: NonNull<ibv_context>, port: u8) -> io::Result<ibv_port_attr> {
    // SAFETY: plain integers, for which all zeroes is a value.
    let mut attr: ibv_port_attr = unsafe { mem::zeroed() };
    // SAFETY: the context is live, `attr` is ours to write.
    or_number(unsafe { rdma_sys::___ibv_query_port(context.as_ptr(), port, &mut attr) })?;
    Ok(attr)
}

// --- Connection manager: event channels --------------------------------------------------------------------------

/// `rdma_create_event_channel(3)`, in non-blocking mode.
pub(super) fn create_event_channel() -> io::Result<NonNull<rdma_event_channel>> {
    // SAFETY: takes no arguments.
    let channel = non_null(unsafe { rdma_sys::rdma_create_event_channel() })?;
    // SAFETY: just made.
    if let Err(error) = set_nonblocking(unsafe { event_channel_fd(channel) }) {
        // SAFETY: just made, and nobody else has it.
        unsafe { destroy_event_channel(channel) };
        return Err(error);
    }
    Ok(channel)
}

/// # Safety
/// No identifier uses the channel any more.
pub(super) unsafe fn destroy_event_channel(channel: NonNull<rdma_event_channel>) {
    // SAFETY: live and unused, by the contract.
    unsafe { rdma_sys::rdma_destroy_event_channel(channel.as_ptr()) }
}

pub(super) unsafe fn event_channel_fd(channel: NonNull<rdma_event_channel>) -> RawFd {
    // SAFETY: live; the field never changes.
    unsafe { channel.as_ref().fd }
}

/// A connection-manager event, copied out.
pub(super) struct CmNotice {
    /// Whom it concerns. For a connect request: the new identifier, which from now on is the caller's to destroy.
    pub(super) id: Option<NonNull<rdma_cm_id>>,
    /// What it means.
    pub(super) kind: EventKind,
}

/// Takes one event and acknowledges it at once: an event not acknowledged would block `rdma_destroy_id` for ever.
///
/// Fails with [`io::ErrorKind::WouldBlock`] if there is none.
pub(super) unsafe fn get_cm_event(channel: NonNull<rdma_event_channel>) -> io::Result<CmNotice> {
    let mut event = ptr::null_mut();
    // SAFETY: the channel is live, `event` is ours to write.
    or_errno(unsafe { rdma_sys::rdma_get_cm_event(channel.as_ptr(), &mut event) })?;
    let event = non_null(event)?;
    // SAFETY: the event is ours until it is acknowledged below; we copy what we need.
    let notice = unsafe {
        let event = event.as_ref();
        CmNotice { id: NonNull::new(event.id), kind: translate::event_kind(event.event, event.status) }
    };
    // SAFETY: acknowledged once, and not looked at again.
    or_errno(unsafe { rdma_sys::rdma_ack_cm_event(event.as_ptr()) })?;
    Ok(notice)
}

// --- Connection manager: identifiers -----------------------------------------------------------------------------

/// # Safety
/// The channel outlives the identifier, or the identifier migrates from it first.
pub(super) unsafe fn create_id(channel: NonNull<rdma_event_channel>) -> io::Result<NonNull<rdma_cm_id>> {
    let mut id = ptr::null_mut();
    let space = rdma_port_space::RDMA_PS_TCP;
    // SAFETY: the channel is live, `id` is ours to write; the context pointer is for us alone and unused.
    or_errno(unsafe { rdma_sys::rdma_create_id(channel.as_ptr(), &mut id, ptr::null_mut(), space) })?;
    non_null(id)
}

/// # Safety
/// Its queue pair is destroyed, and the caller never uses the identifier again, even if this fails.
pub(super) unsafe fn destroy_id(id: NonNull<rdma_cm_id>) -> io::Result<()> {
    // SAFETY: live, by the contract. All events were acknowledged as they were taken, so this does not block.
    or_errno(unsafe { rdma_sys::rdma_destroy_id(id.as_ptr()) })
}

pub(super) unsafe fn resolve_addr(
    id: NonNull<rdma_cm_id>,
    peer: SocketAddr,
    timeout_ms: i32,
) -> io::Result<()> {
    let mut peer = translate::to_raw_addr(peer);
    // SAFETY: the id is live; `peer` is a whole address of the family it names, copied by the call. No source
    // address: the route decides.
    or_errno(unsafe {
        rdma_sys::rdma_resolve_addr(id.as_ptr(), ptr::null_mut(), (&raw mut peer).cast(), timeout_ms)
    })
}

/// # Safety
/// The identifier is bound to a device ([`EventKind::AddressResolved`]).
pub(super) unsafe fn resolve_route(id: NonNull<rdma_cm_id>, timeout_ms: i32) -> io::Result<()> {
    // SAFETY: live and bound, by the contract: the call reads its device.
    or_errno(unsafe { rdma_sys::rdma_resolve_route(id.as_ptr(), timeout_ms) })
}

pub(super) unsafe fn bind_addr(id: NonNull<rdma_cm_id>, addr: SocketAddr) -> io::Result<()> {
    let mut addr = translate::to_raw_addr(addr);
    // SAFETY: the id is live; `addr` is a whole address of the family it names, copied by the call.
    or_errno(unsafe { rdma_sys::rdma_bind_addr(id.as_ptr(), (&raw mut addr).cast()) })
}

/// Keeps a listener on an IPv6 address from taking IPv4 connections too.
pub(super) unsafe fn set_one_family(id: NonNull<rdma_cm_id>) -> io::Result<()> {
    let mut on: i32 = 1;
    // SAFETY: the id is live; the option is an `int`, read during the call.
    or_errno(unsafe {
        rdma_sys::rdma_set_option(
            id.as_ptr(),
            RDMA_OPTION_ID,
            RDMA_OPTION_ID_AFONLY,
            (&raw mut on).cast(),
            size_of_val(&on),
        )
    })
}

/// Listens with the longest backlog that the system allows.
pub(super) unsafe fn listen(id: NonNull<rdma_cm_id>) -> io::Result<()> {
    // SAFETY: live, by the contract.
    or_errno(unsafe { rdma_sys::rdma_listen(id.as_ptr(), 0) })
}

/// Moves an identifier, with the events that already wait for it, to another channel.
///
/// The events are moved without waking anyone: watch the channel's descriptor only afterwards.
///
/// # Safety
/// All events taken for the identifier were acknowledged; the new channel outlives it.
pub(super) unsafe fn migrate_id(
    id: NonNull<rdma_cm_id>,
    channel: NonNull<rdma_event_channel>,
) -> io::Result<()> {
    // SAFETY: both live, by the contract.
    or_errno(unsafe { rdma_sys::rdma_migrate_id(id.as_ptr(), channel.as_ptr()) })
}

/// Sends the connect request.
///
/// # Safety
/// The identifier has its queue pair.
pub(super) unsafe fn connect(id: NonNull<rdma_cm_id>) -> io::Result<()> {
    let mut parameters = connection_parameters();
    // SAFETY: the id is live and its queue pair supplies the number; the parameters are read during the call.
    or_errno(unsafe { rdma_sys::rdma_connect(id.as_ptr(), &mut parameters) })
}

/// Accepts a connect request.
///
/// # Safety
/// The identifier came with a connect request and has its queue pair.
pub(super) unsafe fn accept(id: NonNull<rdma_cm_id>) -> io::Result<()> {
    let mut parameters = connection_parameters();
    // SAFETY: the id is live and its queue pair supplies the number; the parameters are read during the call.
    or_errno(unsafe { rdma_sys::rdma_accept(id.as_ptr(), &mut parameters) })
}

/// What both sides ask of a connection. `rnr_retry_count` of one side rules the sends of the other, so that an
/// accept which leaves it out (0) lets a single unlucky send kill the connection.
fn connection_parameters() -> rdma_conn_param {
    rdma_conn_param {
        private_data: ptr::null(),
        private_data_len: 0,
        responder_resources: RESPONDER_RESOURCES,
        initiator_depth: RESPONDER_RESOURCES,
        flow_control: 0,
        retry_count: RETRY_COUNT,
        rnr_retry_count: RETRY_COUNT,
        srq: 0,
        qp_num: 0,
    }
}

pub(super) unsafe fn reject(id: NonNull<rdma_cm_id>) -> io::Result<()> {
    // SAFETY: live, by the contract; no private data.
    or_errno(unsafe { rdma_sys::rdma_reject(id.as_ptr(), ptr::null(), 0) })
}

/// Moves the queue pair to error and tells the peer.
///
/// # Safety
/// The identifier is bound to a device.
pub(super) unsafe fn disconnect(id: NonNull<rdma_cm_id>) -> io::Result<()> {
    // SAFETY: live and bound, by the contract.
    or_errno(unsafe { rdma_sys::rdma_disconnect(id.as_ptr()) })
}

/// The device that the identifier is bound to, if it is. It stays open as long as the identifier lives.
pub(super) unsafe fn id_device(id: NonNull<rdma_cm_id>) -> Option<NonNull<ibv_context>> {
    // SAFETY: live; the field changes only inside calls made by the identifier's owner.
    NonNull::new(unsafe { id.as_ref().verbs })
}

/// The device's port that the identifier is bound to.
pub(super) unsafe fn id_port(id: NonNull<rdma_cm_id>) -> u8 {
    // SAFETY: as for `id_device`.
    unsafe { id.as_ref().port_num }
}

pub(super) unsafe fn local_addr(id: NonNull<rdma_cm_id>) -> io::Result<SocketAddr> {
    // SAFETY: live, by the contract. Every member of the union starts with the family and is made of integers;
    // the library zeroes what it does not fill.
    unsafe {
        let addr = &id.as_ref().route.addr.src_addr_union;
        match i32::from(addr.src_addr.sa_family) {
            libc::AF_INET => Ok(translate::from_raw_v4(&addr.src_sin)),
            libc::AF_INET6 => Ok(translate::from_raw_v6(&addr.src_sin6)),
            _ => Err(translate::unknown_family(addr.src_addr.sa_family)),
        }
    }
}

pub(super) unsafe fn peer_addr(id: NonNull<rdma_cm_id>) -> io::Result<SocketAddr> {
    // SAFETY: as for `local_addr`.
    unsafe {
        let addr = &id.as_ref().route.addr.dst_addr_union;
        match i32::from(addr.dst_addr.sa_family) {
            libc::AF_INET => Ok(translate::from_raw_v4(&addr.dst_sin)),
            libc::AF_INET6 => Ok(translate::from_raw_v6(&addr.dst_sin6)),
            _ => Err(translate::unknown_family(addr.dst_addr.sa_family)),
        }
    }
}

// --- Protection domains and memory regions -----------------------------------------------------------------------

pub(super) unsafe fn alloc_pd(context: NonNull<ibv_context>) -> io::Result<NonNull<ibv_pd>> {
    // SAFETY: live, by the contract.
    non_null(unsafe { rdma_sys::ibv_alloc_pd(context.as_ptr()) })
}

/// # Safety
/// The caller never uses the domain again, even if this fails.
pub(super) unsafe fn dealloc_pd(pd: NonNull<ibv_pd>) -> io::Result<()> {
    // SAFETY: live, by the contract.
    or_number(unsafe { rdma_sys::ibv_dealloc_pd(pd.as_ptr()) })
}

/// # Safety
/// `start..start + len` is mapped and stays so until the region is deregistered.
pub(super) unsafe fn reg_mr(
    pd: NonNull<ibv_pd>,
    start: NonNull<u8>,
    len: usize,
    access: i32,
) -> io::Result<NonNull<ibv_mr>> {
    // SAFETY: the domain is live and the memory mapped, by the contract.
    non_null(unsafe { rdma_sys::ibv_reg_mr(pd.as_ptr(), start.as_ptr().cast(), len, access) })
}

/// The region's local and remote key.
pub(super) unsafe fn mr_keys(mr: NonNull<ibv_mr>) -> (u32, u32) {
    // SAFETY: live; the fields never change.
    unsafe { (mr.as_ref().lkey, mr.as_ref().rkey) }
}

/// # Safety
/// The caller never uses the region again, even if this fails.
pub(super) unsafe fn dereg_mr(mr: NonNull<ibv_mr>) -> io::Result<()> {
    // SAFETY: live, by the contract.
    or_number(unsafe { rdma_sys::ibv_dereg_mr(mr.as_ptr()) })
}

// --- Completion channels and queues ------------------------------------------------------------------------------

/// `ibv_create_comp_channel(3)`, in non-blocking mode.
pub(super) unsafe fn create_comp_channel(
    context: NonNull<ibv_context>,
) -> io::Result<NonNull<ibv_comp_channel>> {
    // SAFETY: live, by the contract.
    let channel = non_null(unsafe { rdma_sys::ibv_create_comp_channel(context.as_ptr()) })?;
    // SAFETY: just made.
    if let Err(error) = set_nonblocking(unsafe { comp_channel_fd(channel) }) {
        // SAFETY: just made, and nobody else has it. Of the two failures the first is the one to report.
        let _ = unsafe { destroy_comp_channel(channel) };
        return Err(error);
    }
    Ok(channel)
}

/// # Safety
/// The caller never uses the channel again, even if this fails.
pub(super) unsafe fn destroy_comp_channel(channel: NonNull<ibv_comp_channel>) -> io::Result<()> {
    // SAFETY: live, by the contract.
    or_number(unsafe { rdma_sys::ibv_destroy_comp_channel(channel.as_ptr()) })
}

pub(super) unsafe fn comp_channel_fd(channel: NonNull<ibv_comp_channel>) -> RawFd {
    // SAFETY: live; the field never changes.
    unsafe { channel.as_ref().fd }
}

/// Makes a completion queue of at least `depth` entries that reports to `channel`.
pub(super) unsafe fn create_cq(
    context: NonNull<ibv_context>,
    depth: i32,
    channel: NonNull<ibv_comp_channel>,
) -> io::Result<NonNull<ibv_cq>> {
    // SAFETY: both live, by the contract; the user context is for us alone and unused. Vector 0 always exists.
    non_null(unsafe {
        rdma_sys::ibv_create_cq(context.as_ptr(), depth, ptr::null_mut(), channel.as_ptr(), 0)
    })
}

/// How many entries the queue really has.
pub(super) unsafe fn cq_depth(cq: NonNull<ibv_cq>) -> u32 {
    // SAFETY: live; the field changes only by a resize, which we never do.
    u32::try_from(unsafe { cq.as_ref().cqe }).unwrap_or(0)
}

/// # Safety
/// All its events were acknowledged (else this blocks for ever); the caller never uses the queue again, even if
/// this fails.
pub(super) unsafe fn destroy_cq(cq: NonNull<ibv_cq>) -> io::Result<()> {
    // SAFETY: live, by the contract.
    or_number(unsafe { rdma_sys::ibv_destroy_cq(cq.as_ptr()) })
}

/// Asks for an event at the next completion, solicited or not.
pub(super) unsafe fn req_notify_cq(cq: NonNull<ibv_cq>) -> io::Result<()> {
    // SAFETY: live, by the contract.
    or_number(unsafe { rdma_sys::ibv_req_notify_cq(cq.as_ptr(), 0) })
}

/// Takes one event. Fails with [`io::ErrorKind::WouldBlock`] if there is none.
pub(super) unsafe fn get_cq_event(channel: NonNull<ibv_comp_channel>) -> io::Result<()> {
    let mut cq = ptr::null_mut();
    let mut context = ptr::null_mut();
    // SAFETY: the channel is live, the others are ours to write; which queue it was is known to the caller.
    or_errno(unsafe { rdma_sys::ibv_get_cq_event(channel.as_ptr(), &mut cq, &mut context) })
}

/// # Safety
/// So many events were taken for this queue and not yet acknowledged.
pub(super) unsafe fn ack_cq_events(cq: NonNull<ibv_cq>, count: u32) {
    // SAFETY: live, and the count is right, by the contract.
    unsafe { rdma_sys::ibv_ack_cq_events(cq.as_ptr(), count) }
}

/// Takes completions into `buffer` and returns the filled part.
pub(super) unsafe fn poll_cq(
    cq: NonNull<ibv_cq>,
    buffer: &mut [MaybeUninit<ibv_wc>],
) -> io::Result<&[ibv_wc]> {
    let room = i32::try_from(buffer.len()).unwrap_or(i32::MAX);
    // SAFETY: the queue is live and `buffer` has room for as many entries as we say.
    let filled = unsafe { rdma_sys::ibv_poll_cq(cq.as_ptr(), room, buffer.as_mut_ptr().cast()) };
    // A negative answer is no error number (`ibv_poll_cq(3)`).
    let filled = usize::try_from(filled)
        .map_err(|_| io::Error::other(format!("the completion queue cannot be read ({filled})")))?;
    // SAFETY: the call filled the first `filled` entries, which it keeps within the room it was given.
    Ok(unsafe { slice::from_raw_parts(buffer.as_ptr().cast(), filled.min(buffer.len())) })
}

// --- Queue pairs -------------------------------------------------------------------------------------------------

/// Makes the identifier's queue pair, in the state where receives can be posted, and says what was granted.
///
/// # Safety
/// Domain and queue belong to the device that the identifier is bound to, and outlive the queue pair.
pub(super) unsafe fn create_qp(
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
    or_errno(unsafe { rdma_sys::rdma_create_qp(id.as_ptr(), pd.as_ptr(), &mut attr) })?;
    // SAFETY: the id is live, and the call has just set the field.
    let qp = non_null(unsafe { id.as_ref().qp })?;
    Ok((qp, attr.cap))
}

/// Destroys the identifier's queue pair. `rdma_destroy_qp` would do the same and hide the outcome.
///
/// # Safety
/// `qp` is the identifier's; the caller never uses it again, even if this fails.
pub(super) unsafe fn destroy_qp(mut id: NonNull<rdma_cm_id>, qp: NonNull<ibv_qp>) -> io::Result<()> {
    // SAFETY: live and the identifier's only user, by the contract; the library must not find it there again.
    unsafe { id.as_mut().qp = ptr::null_mut() };
    // SAFETY: live, by the contract.
    or_number(unsafe { rdma_sys::ibv_destroy_qp(qp.as_ptr()) })
}

/// A send work request with nothing in it.
pub(super) fn blank_send() -> ibv_send_wr {
    // SAFETY: integers, raw pointers and unions of these, for all of which zeroes are a value.
    unsafe { mem::zeroed() }
}

/// Posts a chain of sends with one doorbell.
///
/// # Safety
/// `first` and what it links to are valid during the call, ends with `NULL`, and every request with the inline
/// flag names memory that may be read.
pub(super) unsafe fn post_send(qp: NonNull<ibv_qp>, first: *mut ibv_send_wr) -> io::Result<()> {
    let mut refused = ptr::null_mut();
    // SAFETY: the queue pair is live and the chain valid, by the contract. Memory that is not inlined is reached
    // by the device alone, through a local key that covers registered memory only.
    or_number(unsafe { rdma_sys::ibv_post_send(qp.as_ptr(), first, &mut refused) })
}

/// Posts a chain of receives.
///
/// # Safety
/// `first` and what it links to are valid during the call, and ends with `NULL`.
pub(super) unsafe fn post_recv(qp: NonNull<ibv_qp>, first: *mut ibv_recv_wr) -> io::Result<()> {
    let mut refused = ptr::null_mut();
    // SAFETY: as for `post_send`.
    or_number(unsafe { rdma_sys::ibv_post_recv(qp.as_ptr(), first, &mut refused) })
}

// --- The operating system ----------------------------------------------------------------------------------------

fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: reads flags of a descriptor; no memory involved.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    or_errno(flags)?;
    // SAFETY: sets flags of a descriptor; no memory involved.
    or_errno(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) })
}

/// The size of a page of memory, in bytes.
pub(super) fn page_size() -> usize {
    // SAFETY: reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("the system knows its page size")
}

/// Reserves `len` bytes of address space in which nothing can be read or written.
pub(super) fn reserve(len: usize) -> io::Result<NonNull<u8>> {
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
pub(super) unsafe fn make_usable(start: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: the caller's own mapping, by the contract.
    or_errno(unsafe { libc::mprotect(start.as_ptr().cast(), len, libc::PROT_READ | libc::PROT_WRITE) })
}

/// Keeps pages out of core dumps: they hold users' data.
///
/// # Safety
/// As for [`make_usable`].
pub(super) unsafe fn leave_out_of_dumps(start: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: the caller's own mapping, by the contract; the advice changes no contents.
    or_errno(unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTDUMP) })
}

/// # Safety
/// The range is a mapping of the caller's own, whole, and nothing points into it any more.
pub(super) unsafe fn unmap(start: NonNull<u8>, len: usize) -> io::Result<()> {
    // SAFETY: the caller's own and unused, by the contract.
    or_errno(unsafe { libc::munmap(start.as_ptr().cast(), len) })
}

/// The soft limit on locked memory in bytes, if there is one.
pub(super) fn memlock_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours to write.
    or_errno(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) }).ok()?;
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}
