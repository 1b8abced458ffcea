//! The completion queue and the channel through which it wakes us.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::task::{Context, Poll, ready};

use super::sys::{ibv_comp_channel, ibv_cq};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use valkey_rdma_proto::work::Completion;

use super::cm::CmId;
use super::shared_cq::demux::Queue;
use super::sys::convert;
use super::{failed, log_teardown, sys};
use crate::device::Interrupt;
use crate::error::TransportError;

/// Completions taken by one call: enough to make the call cheap, few enough for the stack.
const POLL_BATCH: usize = 32;

/// Events acknowledged by one call, which takes a lock.
const ACK_BATCH: u32 = 64;

/// Where a completion queue announces that it is no longer empty.
struct CompletionChannel {
    raw: NonNull<ibv_comp_channel>,
}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: live as long as this value.
        unsafe { sys::comp_channel_fd(self.raw) }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: made in `CompletionQueue::new`, destroyed here only; its queue went before (field order there).
        log_teardown("ibv_destroy_comp_channel", unsafe { sys::destroy_comp_channel(self.raw) });
    }
}

// SAFETY: the pointer is this value's alone, and libibverbs ties no object to a thread.
unsafe impl Send for CompletionChannel {}

/// The descriptor of a [`CompletionChannel`], as tokio watches it.
struct Descriptor(RawFd);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// A completion queue with its channel. It alone uses that channel, so an event needs no address.
pub(super) struct CompletionQueue {
    raw: NonNull<ibv_cq>,
    /// Events taken and not acknowledged. All must be before the queue is destroyed, else that blocks for ever.
    unacknowledged: u32,
    /// Events that may come or have come from past calls of `arm`, at most.
    due: u32,
    /// While tasks wait. Where a thread waits, each event would wake the runtime's as well.
    watch: Option<AsyncFd<Descriptor>>,
    /// After the queue, and what watches it: `Drop` destroys the queue first, then this field the channel.
    channel: CompletionChannel,
}

impl CompletionQueue {
    /// Makes a queue of at least `depth` entries on the device that `id` is bound to, announced by interrupts of
    /// `vector`.
    ///
    /// # Safety
    /// The identifier outlives the queue: it keeps the device open.
    pub(super) unsafe fn new(id: &CmId, depth: u32, vector: u32) -> Result<Self, TransportError> {
        // SAFETY: the identifier keeps its device open, and the channel dies first, by the contract.
        let channel =
            unsafe { sys::create_comp_channel(id.device()) }.map_err(failed("ibv_create_comp_channel"))?;
        let channel = CompletionChannel { raw: channel };
        // SAFETY: the channel goes last (order of the locals, then of the fields).
        let watch = unsafe { watch(&channel) }?;
        let [depth, vector] = [depth, vector].map(|number| i32::try_from(number).unwrap_or(i32::MAX));
        // SAFETY: as above; the queue dies before its channel.
        let raw = unsafe { sys::create_cq(id.device(), depth, channel.raw, vector) }
            .map_err(failed("ibv_create_cq"))?;
        Ok(Self { raw, unacknowledged: 0, due: 0, watch: Some(watch), channel })
    }

    pub(super) fn raw(&self) -> NonNull<ibv_cq> {
        self.raw
    }

    /// How many completions it holds.
    pub(super) fn depth(&self) -> u32 {
        // SAFETY: the queue is live.
        unsafe { sys::cq_depth(self.raw) }
    }

    /// Takes up to `limit` completions, each with the number of its queue pair. Fewer mean that none are left.
    pub(super) fn poll(
        &mut self,
        limit: usize,
        mut each: impl FnMut(u32, Completion),
    ) -> Result<(), TransportError> {
        let mut buffer = [const { MaybeUninit::uninit() }; POLL_BATCH];
        let mut left = limit;
        while left > 0 {
            let batch = left.min(POLL_BATCH);
            // SAFETY: the queue is live, and `&mut self` keeps other threads away.
            let taken =
                unsafe { sys::poll_cq(self.raw, &mut buffer[..batch]) }.map_err(failed("ibv_poll_cq"))?;
            taken.iter().for_each(|wc| each(wc.qp_num, convert::completion(wc)));
            left -= taken.len();
            if taken.len() < batch {
                break;
            }
        }
        Ok(())
    }

    /// Asks for one event at the next completion.
    pub(super) fn arm(&mut self) -> Result<(), TransportError> {
        // SAFETY: the queue is live.
        unsafe { sys::req_notify_cq(self.raw) }.map_err(failed("ibv_req_notify_cq"))?;
        self.due = self.due.saturating_add(1);
        Ok(())
    }

    /// Takes one event.
    ///
    /// The channel counts as empty when it says so, or when it has yielded as many events as calls of `arm` can have caused. The
    /// second way saves a system call per wake-up: armed once, one event, no look for another. In both cases readiness is
    /// cleared before `arm` is called again. No wake-up is lost: tokio keeps readiness that it saw after our last look, and
    /// completions of an event that it saw before are found by the caller, who polls the queue after this event.
    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        loop {
            let watch = match &mut self.watch {
                Some(watch) => watch,
                // SAFETY: the channel goes after it (field order). Events that it holds already are reported too.
                none => none.insert(unsafe { watch(&self.channel) }?),
            };
            let mut ready = ready!(watch.poll_read_ready(cx)).map_err(failed("epoll_wait"))?;
            // SAFETY: the channel is live, and serves this queue only.
            match unsafe { sys::get_cq_event(self.channel.raw) } {
                Ok(()) => {
                    self.due = self.due.saturating_sub(1);
                    self.unacknowledged += 1;
                    if self.unacknowledged == ACK_BATCH {
                        // Left ready, so that the next call looks again: an event may have been on its way
                        // when the channel last said that it was empty, and so have escaped the count.
                        self.acknowledge();
                    } else if self.due == 0 {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // Arming an armed queue adds no event: of all the calls so far, only the last can still
                    // be waiting for its completion.
                    self.due = self.due.min(1);
                    ready.clear_ready();
                }
                Err(error) => return Poll::Ready(Err(failed("ibv_get_cq_event")(error))),
            }
        }
    }

    /// Blocks the thread until it has taken one event: `true`; or until the interrupt's waker was woken: `false`.
    pub(super) fn wait_event(&mut self, interrupt: &Interrupt) -> Result<bool, TransportError> {
        self.watch = None;
        // SAFETY: the descriptor is open as long as the channel, which this call borrows.
        let channel = unsafe { BorrowedFd::borrow_raw(self.channel.as_raw_fd()) };
        let [event, woken] = match sys::wait_readable(channel, interrupt.descriptor()) {
            // For nothing, as the contract allows.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(false),
            ready => ready.map_err(failed("poll"))?,
        };
        if woken {
            interrupt.lower();
        }
        if !event {
            return Ok(false);
        }
        // SAFETY: the channel is live, and serves this queue only.
        match unsafe { sys::get_cq_event(self.channel.raw) } {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(failed("ibv_get_cq_event")(error)),
        }
        self.due = self.due.saturating_sub(1);
        self.unacknowledged += 1;
        if self.unacknowledged == ACK_BATCH {
            self.acknowledge();
        }
        Ok(true)
    }

    fn acknowledge(&mut self) {
        let count = std::mem::take(&mut self.unacknowledged);
        if count > 0 {
            // SAFETY: the queue is live, and as many events were taken since the last call.
            unsafe { sys::ack_cq_events(self.raw, count) };
        }
    }
}

/// Has tokio watch a channel. Events that it holds already are reported too.
///
/// # Safety
/// The channel outlives the value.
unsafe fn watch(channel: &CompletionChannel) -> Result<AsyncFd<Descriptor>, TransportError> {
    let descriptor = Descriptor(channel.as_raw_fd());
    // SAFETY: the descriptor is the channel's for life, which outlives the value, by the contract.
    unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }
        .map_err(|error| failed("epoll_ctl")(error.into()))
}

impl Queue for CompletionQueue {
    fn take(&mut self, sort: &mut dyn FnMut(u32, Completion)) -> Result<(), TransportError> {
        self.poll(usize::MAX, sort)
    }

    /// The connections that share a queue arm it once per event, and again only if an event seems lost. So at most one event is
    /// due, and `due` is set to that. Counted as [`arm`](Self::arm) counts, an event after such a second call would cost a look at
    /// the empty channel each time. If both events do come, the second is found together with the next one, and its completions
    /// were taken after the first.
    fn arm(&mut self) -> Result<(), TransportError> {
        self.arm()?;
        self.due = 1;
        Ok(())
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.poll_event(cx)
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        self.acknowledge();
        // SAFETY: made in `new`, destroyed here only; all events are acknowledged, and every queue pair that uses it went
        // before (field order of the connection; of a shared queue, the last of its connections drops it).
        log_teardown("ibv_destroy_cq", unsafe { sys::destroy_cq(self.raw) });
    }
}

// SAFETY: the pointer is this value's alone, and libibverbs ties no object to a thread.
unsafe impl Send for CompletionQueue {}
