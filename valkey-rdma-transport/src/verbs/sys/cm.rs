//! The connection manager's identifiers and event channels.

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};

use super::bindings::{
    self, ibv_context, ibv_event_type, rdma_cm_id, rdma_conn_param, rdma_event_channel, rdma_port_space,
};
use super::convert::{self, EventKind};
use super::device::device_name;
use super::system::set_nonblocking;
use super::{non_null, or_errno};
use crate::device::CmEvent;

/// # Safety
/// The channel outlives the identifier, or the identifier migrates from it first.
pub(in crate::verbs) unsafe fn create_id(
    channel: NonNull<rdma_event_channel>,
) -> io::Result<NonNull<rdma_cm_id>> {
    let mut id = ptr::null_mut();
    let space = rdma_port_space::RDMA_PS_TCP;
    // SAFETY: the channel is live, `id` is ours to write; the context pointer is for us alone and unused.
    or_errno(unsafe { bindings::rdma_create_id(channel.as_ptr(), &mut id, ptr::null_mut(), space) })?;
    non_null(id)
}

/// # Safety
/// Its queue pair is destroyed, and the caller never uses the identifier again, even if this fails.
pub(in crate::verbs) unsafe fn destroy_id(id: NonNull<rdma_cm_id>) -> io::Result<()> {
    // SAFETY: live, by the contract. All events were acknowledged as they were taken, so this does not block.
    or_errno(unsafe { bindings::rdma_destroy_id(id.as_ptr()) })
}

/// Finds the device that leads to `peer`: from the address `from`, or from the one the route has. Its port is
/// not looked at.
pub(in crate::verbs) unsafe fn resolve_addr(
    id: NonNull<rdma_cm_id>,
    from: Option<SocketAddr>,
    peer: SocketAddr,
    timeout_ms: i32,
) -> io::Result<()> {
    let mut from = from.map(convert::to_raw_addr);
    let from = from.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let mut peer = convert::to_raw_addr(peer);
    // SAFETY: the id is live; both are whole addresses of the family they name, or null, copied by the call.
    or_errno(unsafe {
        bindings::rdma_resolve_addr(id.as_ptr(), from.cast(), (&raw mut peer).cast(), timeout_ms)
    })
}

/// # Safety
/// The identifier is bound to a device (`EventKind::AddressResolved`).
pub(in crate::verbs) unsafe fn resolve_route(id: NonNull<rdma_cm_id>, timeout_ms: i32) -> io::Result<()> {
    // SAFETY: live and bound, by the contract: the call reads its device.
    or_errno(unsafe { bindings::rdma_resolve_route(id.as_ptr(), timeout_ms) })
}

pub(in crate::verbs) unsafe fn bind_addr(id: NonNull<rdma_cm_id>, addr: SocketAddr) -> io::Result<()> {
    let mut addr = convert::to_raw_addr(addr);
    // SAFETY: the id is live; `addr` is a whole address of the family it names, copied by the call.
    or_errno(unsafe { bindings::rdma_bind_addr(id.as_ptr(), (&raw mut addr).cast()) })
}

/// Keeps a listener on an IPv6 address from taking IPv4 connections too.
pub(in crate::verbs) unsafe fn set_one_family(id: NonNull<rdma_cm_id>) -> io::Result<()> {
    let mut on: i32 = 1;
    // SAFETY: the id is live; the option is an `int`, read during the call.
    or_errno(unsafe {
        bindings::rdma_set_option(
            id.as_ptr(),
            bindings::RDMA_OPTION_ID,
            bindings::RDMA_OPTION_ID_AFONLY,
            (&raw mut on).cast(),
            size_of_val(&on),
        )
    })
}

/// Sets how long a connection made or accepted on this identifier waits for acknowledgements, by its code
/// ([`convert::ack_timeout_code`]).
pub(in crate::verbs) unsafe fn set_ack_timeout(id: NonNull<rdma_cm_id>, mut code: u8) -> io::Result<()> {
    // SAFETY: the id is live; the option is a byte, read during the call.
    or_errno(unsafe {
        bindings::rdma_set_option(
            id.as_ptr(),
            bindings::RDMA_OPTION_ID,
            bindings::RDMA_OPTION_ID_ACK_TIMEOUT,
            (&raw mut code).cast(),
            size_of_val(&code),
        )
    })
}

/// Listens with the longest backlog that the system allows.
pub(in crate::verbs) unsafe fn listen(id: NonNull<rdma_cm_id>) -> io::Result<()> {
    // SAFETY: live, by the contract.
    or_errno(unsafe { bindings::rdma_listen(id.as_ptr(), 0) })
}

/// Moves an identifier, with the events that already wait for it, to another channel.
///
/// The events are moved without waking anyone: watch the channel's descriptor only afterwards.
///
/// # Safety
/// All events taken for the identifier were acknowledged; the new channel outlives it.
pub(in crate::verbs) unsafe fn migrate_id(
    id: NonNull<rdma_cm_id>,
    channel: NonNull<rdma_event_channel>,
) -> io::Result<()> {
    // SAFETY: both live, by the contract.
    or_errno(unsafe { bindings::rdma_migrate_id(id.as_ptr(), channel.as_ptr()) })
}

/// RDMA READs and atomics that may be in flight on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::verbs) struct ReadDepths {
    /// The peer's, which this side serves (`responder_resources`).
    pub(in crate::verbs) incoming: u8,
    /// This side's (`initiator_depth`).
    pub(in crate::verbs) outgoing: u8,
}

impl ReadDepths {
    /// As many as asked for in either direction. Some devices refuse 0; where reads are off, it is the memory that may not
    /// be read.
    pub(in crate::verbs) fn wish(read_depth: u8) -> Self {
        Self { incoming: read_depth.max(1), outgoing: read_depth.max(1) }
    }

    /// The smaller of both in each direction.
    pub(in crate::verbs) fn min(self, other: Self) -> Self {
        Self { incoming: self.incoming.min(other.incoming), outgoing: self.outgoing.min(other.outgoing) }
    }
}

/// Sends the connect request.
///
/// # Safety
/// The identifier has its queue pair.
pub(in crate::verbs) unsafe fn connect(
    id: NonNull<rdma_cm_id>,
    retry_count: Option<u8>,
    reads: ReadDepths,
) -> io::Result<()> {
    let mut parameters = connection_parameters(retry_count, reads);
    // SAFETY: the id is live and its queue pair supplies the number; the parameters are read during the call.
    or_errno(unsafe { bindings::rdma_connect(id.as_ptr(), &mut parameters) })
}

/// Accepts a connect request.
///
/// # Safety
/// The identifier came with a connect request and has its queue pair.
pub(in crate::verbs) unsafe fn accept(id: NonNull<rdma_cm_id>, reads: ReadDepths) -> io::Result<()> {
    let mut parameters = connection_parameters(None, reads);
    // SAFETY: the id is live and its queue pair supplies the number; the parameters are read during the call.
    or_errno(unsafe { bindings::rdma_accept(id.as_ptr(), &mut parameters) })
}

/// What both sides ask of a connection. `rnr_retry_count` of one side rules the sends of the other, so that an
/// accept which leaves it out (0) lets a single unlucky send kill the connection.
fn connection_parameters(retry_count: Option<u8>, reads: ReadDepths) -> rdma_conn_param {
    rdma_conn_param {
        private_data: ptr::null(),
        private_data_len: 0,
        responder_resources: reads.incoming,
        initiator_depth: reads.outgoing,
        flow_control: 0,
        retry_count: retry_count.unwrap_or(RETRY_COUNT),
        rnr_retry_count: RNR_RETRY_COUNT,
        srq: 0,
        qp_num: 0,
    }
}

/// Tells the connection manager that the queue pair has received something, which says that the peer regards the
/// connection as established even if its word for it was lost.
pub(in crate::verbs) unsafe fn notify_established(id: NonNull<rdma_cm_id>) -> io::Result<()> {
    // SAFETY: live, by the contract.
    or_errno(unsafe { bindings::rdma_notify(id.as_ptr(), ibv_event_type::IBV_EVENT_COMM_EST) })
}

pub(in crate::verbs) unsafe fn reject(id: NonNull<rdma_cm_id>) -> io::Result<()> {
    // SAFETY: live, by the contract; no private data.
    or_errno(unsafe { bindings::rdma_reject(id.as_ptr(), ptr::null(), 0) })
}

/// Moves the queue pair to error and tells the peer.
///
/// # Safety
/// The identifier is bound to a device.
pub(in crate::verbs) unsafe fn disconnect(id: NonNull<rdma_cm_id>) -> io::Result<()> {
    // SAFETY: live and bound, by the contract.
    or_errno(unsafe { bindings::rdma_disconnect(id.as_ptr()) })
}

/// The device that the identifier is bound to, if it is. It stays open as long as the identifier lives.
pub(in crate::verbs) unsafe fn id_device(id: NonNull<rdma_cm_id>) -> Option<NonNull<ibv_context>> {
    // SAFETY: live; the field changes only inside calls made by the identifier's owner.
    NonNull::new(unsafe { id.as_ref().verbs })
}

/// The device's port that the identifier is bound to.
pub(in crate::verbs) unsafe fn id_port(id: NonNull<rdma_cm_id>) -> u8 {
    // SAFETY: as for `id_device`.
    unsafe { id.as_ref().port_num }
}

pub(in crate::verbs) unsafe fn local_addr(id: NonNull<rdma_cm_id>) -> io::Result<SocketAddr> {
    // SAFETY: live, by the contract. Every member of the union starts with the family and is made of integers;
    // the library zeroes what it does not fill.
    unsafe {
        let addr = &id.as_ref().route.addr.src_addr_union;
        match i32::from(addr.src_addr.sa_family) {
            libc::AF_INET => Ok(convert::from_raw_v4(&addr.src_sin)),
            libc::AF_INET6 => Ok(convert::from_raw_v6(&addr.src_sin6)),
            _ => Err(convert::unknown_family(addr.src_addr.sa_family)),
        }
    }
}

pub(in crate::verbs) unsafe fn peer_addr(id: NonNull<rdma_cm_id>) -> io::Result<SocketAddr> {
    // SAFETY: as for `local_addr`.
    unsafe {
        let addr = &id.as_ref().route.addr.dst_addr_union;
        match i32::from(addr.dst_addr.sa_family) {
            libc::AF_INET => Ok(convert::from_raw_v4(&addr.dst_sin)),
            libc::AF_INET6 => Ok(convert::from_raw_v6(&addr.dst_sin6)),
            _ => Err(convert::unknown_family(addr.dst_addr.sa_family)),
        }
    }
}

/// How often a message that is not acknowledged is repeated, in both directions of a connection made from this side.
/// One less than the field has room for: soft-RoCE takes 7 for "without end", and would never report a cut cable.
const RETRY_COUNT: u8 = 6;

/// How often a message that finds no receive is repeated: without end. A peer that is slow to post receives is
/// waited for, not disconnected (`rdma_connect(3)`).
const RNR_RETRY_COUNT: u8 = 7;

/// `rdma_create_event_channel(3)`, in non-blocking mode.
pub(in crate::verbs) fn create_event_channel() -> io::Result<NonNull<rdma_event_channel>> {
    // SAFETY: takes no arguments.
    let channel = despite_a_shortage(|| non_null(unsafe { bindings::rdma_create_event_channel() }))?;
    // SAFETY: just made.
    if let Err(error) = set_nonblocking(unsafe { event_channel_fd(channel) }) {
        // SAFETY: just made, and held by no other value.
        unsafe { destroy_event_channel(channel) };
        return Err(error);
    }
    Ok(channel)
}

/// Opens the connection manager's file, more than once if it seems not to be there.
///
/// librdmacm looks for it under `/dev/infiniband`, and after any failure under `/dev/char`, where a container has no links.
/// When no descriptor was left for the first, and another thread closed one before the second, the error that comes back
/// is that of the second.
fn despite_a_shortage<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..OPEN_ATTEMPTS {
        match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            outcome => return outcome,
        }
    }
    open()
}

/// Each but the last needs another thread to close a descriptor within microseconds, so a few are enough.
const OPEN_ATTEMPTS: usize = 4;

/// # Safety
/// No identifier uses the channel any more.
pub(in crate::verbs) unsafe fn destroy_event_channel(channel: NonNull<rdma_event_channel>) {
    // SAFETY: live and unused, by the contract.
    unsafe { bindings::rdma_destroy_event_channel(channel.as_ptr()) }
}

pub(in crate::verbs) unsafe fn event_channel_fd(channel: NonNull<rdma_event_channel>) -> RawFd {
    // SAFETY: live; the field never changes.
    unsafe { channel.as_ref().fd }
}

/// A connection-manager event, copied out.
pub(in crate::verbs) struct CmNotice {
    /// Whom it concerns. For a connect request: the new identifier, which from now on is the caller's to destroy.
    pub(in crate::verbs) id: Option<NonNull<rdma_cm_id>>,
    /// What it means.
    pub(in crate::verbs) kind: EventKind,
    /// The device's name, if the event says that the device was removed.
    pub(in crate::verbs) removed_device: Option<String>,
    /// What the peer of a connect request asks for, as seen from this side.
    pub(in crate::verbs) reads: ReadDepths,
}

/// Takes one event and acknowledges it at once: an event not acknowledged would block `rdma_destroy_id` for ever.
///
/// Fails with [`io::ErrorKind::WouldBlock`] if there is none.
pub(in crate::verbs) unsafe fn get_cm_event(channel: NonNull<rdma_event_channel>) -> io::Result<CmNotice> {
    let mut event = ptr::null_mut();
    // SAFETY: the channel is live, `event` is ours to write.
    or_errno(unsafe { bindings::rdma_get_cm_event(channel.as_ptr(), &mut event) })?;
    let event = non_null(event)?;
    // SAFETY: the event is ours until it is acknowledged below; we copy what we need.
    // Both members of the union begin with integers at least as far as is read, and the library zeroed what it did not fill.
    let (id, kind, reads) = unsafe {
        let event = event.as_ref();
        let conn = &event.param.conn;
        let reads = ReadDepths { incoming: conn.responder_resources, outgoing: conn.initiator_depth };
        (NonNull::new(event.id), convert::event_kind(event.event, event.status), reads)
    };
    let removed_device = match (kind, id) {
        // SAFETY: `rdma_destroy_id` waits for the acknowledgement of this event, so the identifier is live until then, and
        // its device with it.
        (EventKind::Contract(CmEvent::DeviceRemoved), Some(id)) => unsafe {
            id_device(id).map(|device| device_name(device))
        },
        _ => None,
    };
    // SAFETY: acknowledged once, and not looked at again.
    or_errno(unsafe { bindings::rdma_ack_cm_event(event.as_ptr()) })?;
    Ok(CmNotice { id, kind, removed_device, reads })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `despite_a_shortage` makes of calls that fail with these numbers and then succeed, and how many it made.
    fn opened_after(failures: &[i32]) -> (Result<(), Option<i32>>, usize) {
        let mut calls = 0;
        let outcome = despite_a_shortage(|| {
            calls += 1;
            failures.get(calls - 1).map_or(Ok(()), |number| Err(io::Error::from_raw_os_error(*number)))
        });
        (outcome.map_err(|error| error.raw_os_error()), calls)
    }

    #[test]
    fn a_file_that_seemed_not_to_be_there_is_opened_again() {
        assert_eq!(opened_after(&[]), (Ok(()), 1));
        assert_eq!(opened_after(&[libc::ENOENT]), (Ok(()), 2));
    }

    #[test]
    fn the_shortage_behind_a_file_that_seemed_not_to_be_there_is_reported() {
        assert_eq!(opened_after(&[libc::ENOENT, libc::EMFILE]), (Err(Some(libc::EMFILE)), 2));
    }

    #[test]
    fn a_file_that_is_not_there_is_reported() {
        assert_eq!(opened_after(&[libc::ENOENT; 9]), (Err(Some(libc::ENOENT)), OPEN_ATTEMPTS));
    }
}
