//! Event channels of the connection manager.

use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::ptr::NonNull;

use crate::device::CmEvent;

use super::bindings::{self, rdma_cm_id, rdma_event_channel};
use super::cm_id::{ReadDepths, id_device};
use super::convert;
use super::convert::EventKind;
use super::device::device_name;
use super::outcome::{non_null, or_errno};
use super::system::set_nonblocking;

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
