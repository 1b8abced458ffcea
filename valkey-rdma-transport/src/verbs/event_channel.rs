//! Event channels of the connection manager.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::sys::{self, CmNotice, rdma_event_channel};
use super::{device_removal, failed};
use crate::error::{EVENT_READY, EVENT_TAKEN, TransportError};

/// Where connection-manager events arrive. Its identifiers hold it until they are destroyed, and so does the task that waits for
/// its events.
pub(super) struct EventChannel {
    raw: NonNull<rdma_event_channel>,
}

impl EventChannel {
    pub(super) fn new() -> Result<Arc<Self>, TransportError> {
        let raw = sys::create_event_channel().map_err(failed("rdma_create_event_channel"))?;
        Ok(Arc::new(Self { raw }))
    }

    /// The channel, for calls of librdmacm. Live as long as this value.
    pub(super) fn raw(&self) -> NonNull<rdma_event_channel> {
        self.raw
    }

    /// Registers the channel with tokio. Events that it holds already are reported too.
    pub(super) fn watch(self: &Arc<Self>) -> Result<AsyncFd<Arc<Self>>, TransportError> {
        // SAFETY: the descriptor belongs to the channel for its whole life, and the `Arc` handed over keeps the channel.
        unsafe { AsyncFd::register_with_interest(Arc::clone(self), Interest::READABLE) }
            .map_err(|error| failed("epoll_ctl")(error.into()))
    }
}

impl AsRawFd for EventChannel {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: live as long as this value.
        unsafe { sys::event_channel_fd(self.raw) }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed here only. Every identifier of the channel holds an `Arc` of it, so none is left.
        unsafe { sys::destroy_event_channel(self.raw) };
    }
}

// SAFETY: librdmacm ties no object to a thread.
unsafe impl Send for EventChannel {}
// SAFETY: the struct behind the pointer never changes; it only names a descriptor, and the calls on that are
// single system calls, which the kernel serialises.
unsafe impl Sync for EventChannel {}

/// Takes one event from `events`.
///
/// # Safety
/// No other thread uses the queue pair of an identifier of this channel now: reading an event also drives it.
pub(super) unsafe fn poll_notice(
    events: &AsyncFd<Arc<EventChannel>>,
    cx: &mut Context<'_>,
) -> Poll<Result<CmNotice, TransportError>> {
    loop {
        let mut ready = ready!(events.poll_read_ready(cx)).map_err(failed(EVENT_READY))?;
        // SAFETY: the channel is live. So are the identifiers that its events name, as destroying one takes its
        // events away, and no thread uses them, by the contract.
        match unsafe { sys::get_cm_event(events.get_ref().raw) } {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
            Err(error) => return Poll::Ready(Err(failed(EVENT_TAKEN)(error))),
            Ok(notice) => {
                if let Some(device) = &notice.removed_device {
                    device_removal::release_removed_device(device.clone());
                }
                return Poll::Ready(Ok(notice));
            }
        }
    }
}
