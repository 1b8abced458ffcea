//! Where a connection's completions come from.

use std::ptr::NonNull;
use std::task::{Context, Poll};

use super::sys::ibv_cq;
use valkey_rdma_proto::work::Completion;

use super::cm::CmId;
use super::cq::CompletionQueue;
use super::shared_cq::Membership;
use crate::device::{DeviceLimits, DeviceOptions, Interrupt};
use crate::error::TransportError;

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
                let deepest = most.completion_depth;
                // SAFETY: the same as ours.
                unsafe { group.queues().join(id, depth, deepest, vector) }.map(Self::Shared)
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
