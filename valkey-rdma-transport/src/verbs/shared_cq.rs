//! A completion queue that several connections share by [these rules](demux), behind a lock, with a task that waits
//! for its events. [`CqHandle`] is where a connection's completions come from: such a queue, or one of its own.

pub(super) mod demux;
mod too_small;

use std::future::poll_fn;
use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use valkey_rdma_proto::work::Completion;

use self::demux::{CqDemux, MemberId};
use self::too_small::TooSmall;
use super::cm::CmId;
use super::cq::CompletionQueue;
use super::sys::{self, ibv_cq};
use crate::device::{DeviceLimits, DeviceOptions, Interrupt, SharedCqError};
use crate::error::TransportError;
use crate::sync::{Mutex, lock};

/// The queues of one group of connections. Each device and each completion vector has queues of its own, and another one is made
/// when these are full.
#[derive(Default)]
pub(crate) struct Queues(Mutex<Vec<Arc<SharedQueue>>>);

impl Queues {
    /// Finds or makes a queue with room for a connection that never has more than `depth` completions in flight. The connection has it to
    /// itself if the device, which can do `most`, has none with room for two.
    ///
    /// # Safety
    /// The identifier outlives the handle: it keeps the device open.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(super) unsafe fn join(
        &self,
        id: &CmId,
        depth: u32,
        most: &DeviceLimits,
        vector: u32,
    ) -> Result<CqHandle, TransportError> {
        let mut queues = lock(&self.0);
        queues.retain(|queue| lock(&queue.demux).is_some());
        let origin = Origin { device: id.device().as_ptr() as usize, vector };
        if let Some(membership) = queues.iter().find_map(|queue| queue.join(origin, depth)) {
            return Ok(CqHandle::Shared(membership));
        }
        let mut deepest = most.completion_depth;
        let mut members = most.cq_members(depth);
        let queue = loop {
            let whole = depth.saturating_mul(members);
            // SAFETY: the last member drops the queue when it leaves, and its identifier keeps the device open until then.
            match unsafe { CompletionQueue::new(id, whole, vector) } {
                Err(error) if members > 1 => {
                    tracing::debug!(%error, whole, "the device refused a completion queue of this depth; trying half of it");
                    deepest = whole - 1;
                    members /= 2;
                }
                outcome => break outcome?,
            }
        };
        if members == 1 {
            // SAFETY: the identifier is live.
            let device = unsafe { sys::device_name(id.device()) };
            too_small::warn_once(TooSmall { device, depth, deepest });
            return Ok(CqHandle::Own(queue));
        }
        let demux = Mutex::new(Some(CqDemux::new(queue, depth.saturating_mul(members))));
        let queue = Arc::new(SharedQueue { origin, members, demux });
        let membership = queue.join(origin, depth).expect("a new queue has room for one");
        tokio::spawn(CqDispatcher(Arc::clone(&queue)).poll_dispatch());
        queues.push(queue);
        Ok(CqHandle::Shared(membership))
    }
}

/// What a queue was made for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Origin {
    /// The address of the device's context. It stays open while the queue has members, so no other device gets the address.
    device: usize,
    /// The completion vector: the interrupt that announces completions.
    vector: u32,
}

struct SharedQueue {
    origin: Origin,
    /// How many members as deep as the first have room.
    members: u32,
    /// Until the last member has left.
    demux: Mutex<Option<CqDemux<CompletionQueue>>>,
}

impl SharedQueue {
    fn join(self: &Arc<Self>, origin: Origin, depth: u32) -> Option<Membership> {
        let place = lock(&self.demux).as_mut().filter(|_| self.origin == origin)?.join(depth)?;
        Some(Membership { queue: Arc::clone(self), place })
    }

    /// Runs `work` with the lock held, and then wakes the tasks that it collected.
    fn with<T>(&self, work: impl FnOnce(&mut Option<CqDemux<CompletionQueue>>, &mut Vec<Waker>) -> T) -> T {
        let mut wake = Vec::new();
        let outcome = work(&mut lock(&self.demux), &mut wake);
        wake.into_iter().for_each(Waker::wake);
        outcome
    }
}

/// One connection's place in a shared queue. Drop it after the queue pair.
pub(super) struct Membership {
    queue: Arc<SharedQueue>,
    place: MemberId,
}

impl Membership {
    pub(super) fn raw(&self) -> NonNull<ibv_cq> {
        self.with(|demux, _| demux.queue().raw())
    }

    /// Number of entries of the queue that are reserved for this connection.
    pub(super) fn depth(&self) -> u32 {
        self.with(|demux, _| demux.depth(self.place))
    }

    /// Assigns the completions of the queue pair with this number to this connection.
    pub(super) fn bind_qp(&mut self, queue_pair: u32) {
        self.with(|demux, wake| demux.bind_qp(self.place, queue_pair, wake));
    }

    pub(super) fn poll(&mut self, out: &mut Vec<Completion>, limit: usize) -> Result<(), TransportError> {
        self.with(|demux, wake| demux.poll(self.place, out, limit, wake))
    }

    pub(super) fn arm(&mut self) -> Result<(), TransportError> {
        self.with(|demux, wake| demux.arm(self.place, wake))
    }

    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        self.with(|demux, _| demux.poll_event(self.place, cx))
    }

    /// Ends the queue, after the device has reported that it failed.
    pub(super) fn end(&mut self) {
        self.with(|demux, wake| demux.end(SharedCqError::Failed, wake));
    }

    fn with<T>(&self, work: impl FnOnce(&mut CqDemux<CompletionQueue>, &mut Vec<Waker>) -> T) -> T {
        self.queue.with(|demux, wake| work(demux.as_mut().expect("open while it has members"), wake))
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let over = self.queue.with(|demux, wake| {
            let last = demux.as_mut().is_some_and(|demux| demux.leave(self.place, wake));
            if last { mem::take(demux) } else { None }
        });
        if let Some(demux) = over {
            tracing::debug!(counts = ?demux.counts(), "a shared completion queue is no longer needed");
        }
    }
}

/// Waits for a queue's events, as a task of the runtime that made its first member.
struct CqDispatcher(Arc<SharedQueue>);

impl CqDispatcher {
    async fn poll_dispatch(self) {
        let turn = |cx: &mut Context<'_>| {
            self.0.with(|demux, wake| match demux {
                Some(demux) => demux.poll_dispatch(cx, wake).map(|()| true),
                None => Poll::Ready(false),
            })
        };
        while poll_fn(turn).await {
            // Lets the runtime poll its sockets, so that the dispatchers of other queues get their events.
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for CqDispatcher {
    /// If the queue still has members, the runtime has ended before them.
    fn drop(&mut self) {
        self.0.with(|demux, wake| {
            if let Some(demux) = demux {
                demux.end(SharedCqError::Runtime, wake);
            }
        });
    }
}

/// A completion queue of one connection, or its place in a shared one. To be dropped after its queue pair.
pub(super) enum CqHandle {
    Own(CompletionQueue),
    Shared(Membership),
}

impl CqHandle {
    /// With room for as many completions as both queues of the connection have entries.
    ///
    /// # Safety
    /// The identifier outlives the value: it keeps the device open.
    pub(super) unsafe fn new(
        id: &CmId,
        options: &DeviceOptions,
        most: &DeviceLimits,
    ) -> Result<Self, TransportError> {
        let depth = options.send_depth.saturating_add(options.receive_depth);
        let vector = options.completion_vector;
        match &options.shared_cq {
            // SAFETY: the same as ours.
            None => unsafe { CompletionQueue::new(id, depth, vector) }.map(Self::Own),
            Some(group) => {
                // SAFETY: the same as ours.
                unsafe { group.queues().join(id, depth, most, vector) }
            }
        }
    }

    pub(super) fn raw(&self) -> NonNull<ibv_cq> {
        match self {
            Self::Own(queue) => queue.raw(),
            Self::Shared(membership) => membership.raw(),
        }
    }

    /// The number of completions that there is room for.
    pub(super) fn depth(&self) -> u32 {
        match self {
            Self::Own(queue) => queue.depth(),
            Self::Shared(membership) => membership.depth(),
        }
    }

    /// How many connections like this one have room in its queue.
    pub(super) fn members(&self) -> u32 {
        match self {
            Self::Own(_) => 1,
            Self::Shared(membership) => membership.queue.members,
        }
    }

    /// Names the queue pair whose completions are this connection's, before anything completes.
    pub(super) fn bind_qp(&mut self, queue_pair: u32) {
        if let Self::Shared(membership) = self {
            membership.bind_qp(queue_pair);
        }
    }

    /// The device has reported a fault of the queue. One that is shared takes no more connections, and ends those it has.
    pub(super) fn end(&mut self) {
        if let Self::Shared(membership) = self {
            membership.end();
        }
    }

    pub(super) fn poll(&mut self, out: &mut Vec<Completion>, limit: usize) -> Result<(), TransportError> {
        match self {
            Self::Own(queue) => queue.poll(limit, |_, completion| out.push(completion)),
            Self::Shared(membership) => membership.poll(out, limit),
        }
    }

    pub(super) fn arm(&mut self) -> Result<(), TransportError> {
        match self {
            Self::Own(queue) => queue.arm(),
            Self::Shared(membership) => membership.arm(),
        }
    }

    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        match self {
            Self::Own(queue) => queue.poll_event(cx),
            Self::Shared(membership) => membership.poll_event(cx),
        }
    }

    pub(super) fn wait_event(&mut self, interrupt: &Interrupt) -> Result<bool, TransportError> {
        match self {
            Self::Own(queue) => queue.wait_event(interrupt),
            // The dispatcher task takes the events.
            Self::Shared(membership) => interrupt.wait_for(|cx| membership.poll_event(cx)),
        }
    }
}
