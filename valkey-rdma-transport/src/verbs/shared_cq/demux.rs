//! Sorting the completions of a shared queue to the connections that share it. No locks and no devices in here.
//!
//! Each member has an inbox. A member that polls takes every completion from the queue and puts each into the inbox of the
//! member it belongs to. One task, the dispatcher, waits for the queue's events. It wakes the members that asked for an event
//! and have completions. It arms the queue only when a round has found nothing, so that a busy queue needs no events.
//!
//! No wake-up is lost, for two reasons. While a member waits, either the queue is armed and its event has not been taken, or
//! the dispatcher is scheduled. And after the queue is armed it is polled again: by the dispatcher, or by the member that
//! armed it, as the device contract requires.
//!
//! A member never wakes another member. The dispatcher does, because it runs anyway. Waking directly would also be unfair: a
//! runtime with several threads runs the task that was woken last before those that wait.
//!
//! If the device loses an event, a member that arms a second time without a wake-up schedules the dispatcher.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::task::{Context, Poll, Waker};

use valkey_rdma_proto::work::Completion;

use crate::device::SharedCqError;
use crate::error::TransportError;
use crate::sync::keep_waker;

/// The completion queue that is shared.
pub(in crate::verbs) trait Queue {
    /// Takes all completions, oldest first, each with the number of its queue pair.
    fn take(&mut self, sort: &mut dyn FnMut(u32, Completion)) -> Result<(), TransportError>;

    /// Asks for one event at the next completion.
    fn arm(&mut self) -> Result<(), TransportError>;

    /// Takes one event. `Pending` keeps the waker.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>>;
}

/// A queue and its members. Methods collect the tasks to wake, and the caller wakes them without holding the lock.
pub(in crate::verbs) struct CqDemux<Q> {
    queue: Q,
    /// A member that leaves makes room for a new one.
    members: Vec<Option<CqMember>>,
    /// The member of each queue pair. A queue pair completes nothing before it is entered here.
    of_queue_pairs: HashMap<u32, MemberId>,
    /// Entries of the queue that no member has reserved.
    free: u32,
    /// The queue is armed, and its event has not been taken.
    armed: bool,
    /// The dispatcher is about to run.
    dispatch_pending: bool,
    dispatcher: Option<Waker>,
    /// Why the queue delivers no more completions.
    broken: Option<SharedCqError>,
    counts: Counts,
}

/// Counts of what the queue did for all members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::verbs) struct Counts {
    pub(in crate::verbs) events: u64,
    pub(in crate::verbs) arms: u64,
}

/// Identifies a member until it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::verbs) struct MemberId(usize);

struct CqMember {
    /// Number of entries of the queue that it has reserved.
    depth: u32,
    inbox: VecDeque<Completion>,
    /// It asked for an event at the next completion.
    armed: bool,
    /// It has completions and waits for its wake-up.
    notified: bool,
    waker: Option<Waker>,
}

impl<Q: Queue> CqDemux<Q> {
    /// Shares a queue of `depth` entries. The dispatcher counts as scheduled.
    pub(in crate::verbs) fn new(queue: Q, depth: u32) -> Self {
        Self {
            queue,
            members: Vec::new(),
            of_queue_pairs: HashMap::new(),
            free: depth,
            armed: false,
            dispatch_pending: true,
            dispatcher: None,
            broken: None,
            counts: Counts::default(),
        }
    }

    pub(in crate::verbs) fn queue(&self) -> &Q {
        &self.queue
    }

    pub(in crate::verbs) fn counts(&self) -> Counts {
        self.counts
    }

    /// Adds a member that never has more than `depth` completions in flight. `None`: the queue is full, or it has ended.
    pub(in crate::verbs) fn join(&mut self, depth: u32) -> Option<MemberId> {
        self.free = self.free.checked_sub(depth).filter(|_| self.broken.is_none())?;
        let member = CqMember { depth, inbox: VecDeque::new(), armed: false, notified: false, waker: None };
        let place = self.members.iter().position(Option::is_none).unwrap_or_else(|| {
            self.members.push(None);
            self.members.len() - 1
        });
        self.members[place] = Some(member);
        Some(MemberId(place))
    }

    /// Number of entries of the queue that the member has reserved.
    pub(in crate::verbs) fn depth(&mut self, member: MemberId) -> u32 {
        self.member(member).depth
    }

    /// Assigns a queue pair's completions to a member.
    pub(in crate::verbs) fn bind_qp(&mut self, member: MemberId, queue_pair: u32, wake: &mut Vec<Waker>) {
        // Completions that an earlier queue pair of this number left are not the member's. Its next poll reports a failure.
        let _ = self.sort(wake);
        self.of_queue_pairs.insert(queue_pair, member);
    }

    /// Removes a member whose queue pair is destroyed. Returns whether it was the last one: then drop the queue, and wake the
    /// dispatcher, whose waker is collected too.
    pub(in crate::verbs) fn leave(&mut self, member: MemberId, wake: &mut Vec<Waker>) -> bool {
        // Completions that the queue pair left take room in the queue, and another queue pair may get its number.
        let _ = self.sort(wake);
        self.of_queue_pairs.retain(|_, place| *place != member);
        self.free += self.members[member.0].take().map_or(0, |member| member.depth);
        let last = self.members.iter().all(Option::is_none);
        if last {
            wake.extend(self.dispatcher.take());
        }
        last
    }

    /// As [`DeviceConnection::poll`](crate::device::DeviceConnection::poll).
    pub(in crate::verbs) fn poll(
        &mut self,
        member: MemberId,
        out: &mut Vec<Completion>,
        limit: usize,
        wake: &mut Vec<Waker>,
    ) -> Result<(), TransportError> {
        let looked = if self.member(member).inbox.len() < limit { self.sort(wake) } else { Ok(()) };
        let inbox = &mut self.member(member).inbox;
        let taken = limit.min(inbox.len());
        out.extend(inbox.drain(..taken));
        looked
    }

    /// As [`DeviceConnection::arm`](crate::device::DeviceConnection::arm).
    pub(in crate::verbs) fn arm(
        &mut self,
        member: MemberId,
        wake: &mut Vec<Waker>,
    ) -> Result<(), TransportError> {
        if self.member(member).armed {
            // The device may have lost the event. The dispatcher polls the queue and arms it again.
            self.armed = false;
            self.dispatch_pending = true;
            wake.extend(self.dispatcher.take());
        }
        // Completions that arrived before the queue is armed raise no event.
        self.sort(wake)?;
        self.member(member).armed = true;
        if self.armed || self.dispatch_pending { Ok(()) } else { self.ask() }
    }

    /// As [`DeviceConnection::poll_completion_event`](crate::device::DeviceConnection::poll_completion_event).
    pub(in crate::verbs) fn poll_event(
        &mut self,
        member: MemberId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), TransportError>> {
        let broken = self.broken;
        let member = self.member(member);
        if mem::take(&mut member.notified) {
            return Poll::Ready(Ok(()));
        }
        if let Some(cause) = broken {
            return Poll::Ready(Err(TransportError::SharedQueue { cause }));
        }
        keep_waker(&mut member.waker, cx);
        Poll::Pending
    }

    /// One round of the dispatcher: takes the queue's events and sorts the completions. If no member has any, it arms the queue, if
    /// a member asked for that, and sleeps (`Pending`). Otherwise it runs again after the members that it wakes: completions that
    /// arrive meanwhile then need no event.
    pub(in crate::verbs) fn poll_dispatch(
        &mut self,
        cx: &mut Context<'_>,
        wake: &mut Vec<Waker>,
    ) -> Poll<()> {
        keep_waker(&mut self.dispatcher, cx);
        self.dispatch_pending = self.broken.is_none() && self.dispatch(cx, wake).is_ok() && !wake.is_empty();
        if self.dispatch_pending { Poll::Ready(()) } else { Poll::Pending }
    }

    fn dispatch(&mut self, cx: &mut Context<'_>, wake: &mut Vec<Waker>) -> Result<(), TransportError> {
        while let Poll::Ready(event) = self.queue.poll_event(cx) {
            event.inspect_err(|error| self.fail(error, wake))?;
            self.counts.events += 1;
            self.armed = false;
        }
        self.sort(wake)?;
        self.notify(wake);
        if wake.is_empty() && !self.armed && self.members.iter().flatten().any(|member| member.armed) {
            self.ask().inspect_err(|error| self.fail(error, wake))?;
            // As above.
            self.sort(wake)?;
            self.notify(wake);
        }
        Ok(())
    }

    /// Collects the wakers of the members that have completions.
    fn notify(&mut self, wake: &mut Vec<Waker>) {
        let notified = self.members.iter_mut().flatten().filter(|member| member.notified);
        wake.extend(notified.filter_map(|member| member.waker.take()));
    }

    /// Ends the queue for a reason outside of it.
    pub(in crate::verbs) fn end(&mut self, cause: SharedCqError, wake: &mut Vec<Waker>) {
        // Completions that have arrived still belong to their members.
        let _ = self.sort(wake);
        self.break_off(cause, wake);
    }

    /// Moves all completions from the queue to the inboxes.
    fn sort(&mut self, wake: &mut Vec<Waker>) -> Result<(), TransportError> {
        if let Some(cause) = self.broken {
            return Err(TransportError::SharedQueue { cause });
        }
        let Self { queue, members, of_queue_pairs, .. } = self;
        let taken = queue.take(&mut |queue_pair, completion| {
            let Some(MemberId(place)) = of_queue_pairs.get(&queue_pair) else { return };
            let Some(member) = &mut members[*place] else { return };
            member.inbox.push_back(completion);
            member.notified |= mem::take(&mut member.armed);
        });
        taken.inspect_err(|error| self.fail(error, wake))
    }

    fn ask(&mut self) -> Result<(), TransportError> {
        self.counts.arms += 1;
        self.queue.arm()?;
        self.armed = true;
        Ok(())
    }

    fn fail(&mut self, error: &TransportError, wake: &mut Vec<Waker>) {
        let (error, members) = (error as &dyn std::error::Error, self.members.iter().flatten().count());
        tracing::warn!(error, members, "a shared completion queue has failed");
        self.break_off(SharedCqError::Failed, wake);
    }

    fn break_off(&mut self, cause: SharedCqError, wake: &mut Vec<Waker>) {
        self.broken.get_or_insert(cause);
        wake.extend(self.members.iter_mut().flatten().filter_map(|member| member.waker.take()));
    }

    fn member(&mut self, MemberId(place): MemberId) -> &mut CqMember {
        self.members[place].as_mut().expect("a member until it leaves")
    }
}

#[cfg(test)]
mod tests;
