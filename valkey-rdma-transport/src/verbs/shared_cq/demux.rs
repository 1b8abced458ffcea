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

/// What is shared.
pub(in crate::verbs) trait Queue {
    /// Takes all there is, oldest first, each with the number of its queue pair.
    fn take(&mut self, sort: &mut dyn FnMut(u32, Completion)) -> Result<(), TransportError>;

    /// Asks for one event at the next completion.
    fn arm(&mut self) -> Result<(), TransportError>;

    /// Takes one event. `Pending` keeps the waker.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>>;
}

/// A queue and its members. Those to wake are handed back to the caller, who does so without its lock.
pub(in crate::verbs) struct CqDemux<Q> {
    queue: Q,
    /// Those who have left leave a place for those to come.
    members: Vec<Option<CqMember>>,
    /// Whose a queue pair's completions are. Nothing completes before that is known.
    of_queue_pairs: HashMap<u32, MemberId>,
    /// Entries of the queue that are nobody's.
    free: u32,
    /// An event was armed for and has not been taken.
    armed: bool,
    /// The dispatcher is about to run.
    dispatch_pending: bool,
    dispatcher: Option<Waker>,
    /// Why no completion can be had any more.
    broken: Option<SharedCqError>,
    counts: Counts,
}

/// What was armed of the queue on behalf of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::verbs) struct Counts {
    pub(in crate::verbs) events: u64,
    pub(in crate::verbs) arms: u64,
}

/// By which a member is called, until it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::verbs) struct MemberId(usize);

struct CqMember {
    /// How many entries of the queue are its own.
    depth: u32,
    inbox: VecDeque<Completion>,
    /// It wants to be notified of the next completion.
    armed: bool,
    /// It has completions and waits for its wake-up.
    notified: bool,
    waker: Option<Waker>,
}

impl<Q: Queue> CqDemux<Q> {
    /// Shares a queue of `depth` entries. The dispatcher is about to run for the first time.
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

    /// A new member that never has more than `depth` completions under way. `None`: there is no room for it, or nothing
    /// to be had any more.
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

    /// How many entries of the queue are the member's.
    pub(in crate::verbs) fn depth(&mut self, member: MemberId) -> u32 {
        self.member(member).depth
    }

    /// Says which completions are the member's.
    pub(in crate::verbs) fn bind_qp(&mut self, member: MemberId, queue_pair: u32, wake: &mut Vec<Waker>) {
        // What an earlier queue pair of this number has left is not the member's. If that fails, it learns when it polls.
        let _ = self.sort(wake);
        self.of_queue_pairs.insert(queue_pair, member);
    }

    /// The member leaves, and its queue pair is gone. Returns whether it was the last one: then the queue is to be
    /// dropped, and the dispatcher among those to wake.
    pub(in crate::verbs) fn leave(&mut self, member: MemberId, wake: &mut Vec<Waker>) -> bool {
        // What the queue pair has left in the queue takes room there, and another one may get its number.
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
            // It may have given up waiting to be notified, as an event was lost. The dispatcher looks, and asks for another.
            self.armed = false;
            self.dispatch_pending = true;
            wake.extend(self.dispatcher.take());
        }
        // What came before raises no event.
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
        keep(&mut member.waker, cx);
        Poll::Pending
    }

    /// One round of the dispatcher: takes the queue's events and hands out what there is. If there is nothing, it asks for an event,
    /// should anyone want one, and sleeps (`Pending`). Otherwise it is to have another turn when those to wake have had
    /// theirs: in the meantime there may be more, for which no event is needed.
    pub(in crate::verbs) fn poll_dispatch(
        &mut self,
        cx: &mut Context<'_>,
        wake: &mut Vec<Waker>,
    ) -> Poll<()> {
        keep(&mut self.dispatcher, cx);
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
            // What came before the event was armed for raises none.
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

    /// Nothing more comes from the queue, for a reason outside of it.
    pub(in crate::verbs) fn end(&mut self, cause: SharedCqError, wake: &mut Vec<Waker>) {
        // What has come until now is still the members'.
        let _ = self.sort(wake);
        self.break_off(cause, wake);
    }

    /// Takes what lies in the queue and puts it into the inboxes.
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

fn keep(kept: &mut Option<Waker>, cx: &Context<'_>) {
    match kept {
        Some(waker) => waker.clone_from(cx.waker()),
        none => *none = Some(cx.waker().clone()),
    }
}

#[cfg(test)]
mod tests;
