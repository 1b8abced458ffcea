//! Event channels of the connection manager, and the closing of a device that an event reports removed.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fs, io, thread};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::failed;
use super::sys::{self, CmNotice, rdma_event_channel};
use crate::error::{EVENT_READY, EVENT_TAKEN, TransportError};
use crate::process::without_signals;
use crate::sync::{Mutex, lock};

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
                    release_removed_device(device.clone());
                }
                return Poll::Ready(Ok(notice));
            }
        }
    }
}

/// The time between two looks at whether the kernel still lists the device, and the number of looks.
const PERIOD: Duration = Duration::from_millis(50);
const LOOKS: u32 = 200;

/// Has the device closed as soon as the last connection on it is gone, by a thread that ends with that.
///
/// librdmacm opens each device once and keeps it open. A removed device therefore keeps two descriptors. Drivers that cannot
/// remove a device while it is open (soft-RoCE) wait until it is closed. librdmacm closes a device when it lists the devices,
/// finds that one missing, and no connection uses it.
///
/// Where the device was the only one of the machine, librdmacm keeps it open until the process ends.
pub(super) fn release_removed_device(device: String) {
    static UNDER_WAY: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let under_way = || lock(&UNDER_WAY);
    if !under_way().insert(device.clone()) {
        return;
    }
    let name = device.clone();
    let look = move || {
        let hidden = (0..LOOKS).any(|_| {
            let hidden = !is_listed(&name);
            if !hidden {
                thread::sleep(PERIOD);
            }
            hidden
        });
        if !hidden {
            // Another one may have got its name.
            let waited = PERIOD * LOOKS;
            tracing::warn!(
                device = name,
                ?waited,
                "removed, and still listed: it may stay open until the process ends"
            );
        }
        sys::look_for_devices();
        under_way().remove(&name);
    };
    let thread = thread::Builder::new().name("rdma-removal".to_owned());
    if let Err(error) = without_signals(|| thread.spawn(look)) {
        under_way().remove(&device);
        tracing::warn!(%error, device, "a removed device stays open until the process ends");
    }
}

/// Whether the kernel offers the device to programs.
fn is_listed(device: &str) -> bool {
    let offered = fs::read_dir("/sys/class/infiniband_verbs").into_iter().flatten().flatten();
    let mut names = offered.filter_map(|entry| fs::read_to_string(entry.path().join("ibdev")).ok());
    names.any(|name| name.trim() == device)
}
