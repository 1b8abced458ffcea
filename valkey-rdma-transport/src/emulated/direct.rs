//! The link within one process: posting a send carries it out at once, by copying from one side's region into the
//! other's.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::time::Instant;
use valkey_rdma_proto::work::{FailureStatus, ReceiveRequest, SendOp, SendRequest};

use super::device::Disturb;
use super::queue_pair::requester::InFlightSend;
use super::queue_pair::responder::Refusal;
use super::queue_pair::{QueuePair, QueuePairState};
use super::{REASON_NO_LISTENER, wake};
use crate::device::CmEvent;
use crate::error::TransportError;
use crate::sync::{DeadlineTimer, Mutex, MutexGuard, lock};

/// Which end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Active,
    Passive,
}

impl End {
    fn other(self) -> End {
        match self {
            End::Active => End::Passive,
            End::Passive => End::Active,
        }
    }
}

/// Two sides under one lock, so that a send and its effect at the peer are one step.
#[derive(Clone, Debug)]
pub(super) struct DirectLink(Arc<Mutex<Sides>>);

#[derive(Debug)]
pub(super) struct Sides {
    sides: [QueuePair; 2],
    opening: Opening,
    passage: Passage,
    timer: Timer,
}

/// How far the active end's request to connect has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    Fresh,
    Asked,
    Answered,
}

/// Whether anything passes between the sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passage {
    Open,
    /// Nothing passes, and both ends were notified.
    Severed,
    /// Nothing passes, and neither end is notified.
    Cut,
}

/// The task that keeps time for a link on which something has to happen later. Most links never need one.
#[derive(Debug)]
enum Timer {
    Absent,
    Waiting {
        until: Instant,
        waker: Waker,
    },
    /// Started, or about to look at the link.
    Awake,
}

impl DirectLink {
    pub(super) fn new(active: QueuePair, passive: QueuePair) -> Self {
        Self(Arc::new(Mutex::new(Sides {
            sides: [active, passive],
            opening: Opening::Fresh,
            passage: Passage::Open,
            timer: Timer::Absent,
        })))
    }

    pub(super) fn downgrade(&self) -> Weak<Mutex<Sides>> {
        Arc::downgrade(&self.0)
    }

    /// Runs `step` under the lock, then wakes the tasks that can go on.
    pub(super) fn with<R>(&self, step: impl FnOnce(&mut Sides) -> R) -> R {
        let (result, wakers, start) = {
            let mut sides = self.lock();
            let result = step(&mut sides);
            let (timer, start) = sides.check_timer();
            let [active, passive] = &mut sides.sides;
            let ([a, b], [c, d]) = (active.take_wakers(), passive.take_wakers());
            (result, [a, b, c, d, timer], start)
        };
        wake(wakers);
        if start {
            self.start_timer();
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Sides> {
        lock(&self.0)
    }

    fn start_timer(&self) {
        tokio::spawn(TimerTask { link: self.downgrade(), timer: DeadlineTimer::default(), over: false });
    }
}

/// What a [`Timer`] runs.
struct TimerTask {
    link: Weak<Mutex<Sides>>,
    timer: DeadlineTimer,
    /// The link knows that it has no timer any more.
    over: bool,
}

impl Future for TimerTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            let Some(link) = this.link.upgrade().map(DirectLink) else { return Poll::Ready(()) };
            let deadline = link.with(|sides| {
                sides.advance();
                let deadline = sides.deadline();
                sides.timer = match deadline {
                    Some(until) => Timer::Waiting { until, waker: cx.waker().clone() },
                    None => Timer::Absent,
                };
                deadline
            });
            this.over = deadline.is_none();
            let Some(deadline) = deadline else { return Poll::Ready(()) };
            if !this.timer.poll_deadline(cx, deadline) {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for TimerTask {
    /// Its runtime may end before the link does, which then needs another one.
    fn drop(&mut self) {
        if let Some(sides) = self.link.upgrade().filter(|_| !self.over) {
            lock(&sides).timer = Timer::Absent;
        }
    }
}

impl Disturb for Mutex<Sides> {
    fn resume(self: Arc<Self>) {
        DirectLink(self).with(Sides::resume);
    }

    fn reset_timers(self: Arc<Self>) {
        // The timer is checked after every access.
        DirectLink(self).with(|_| ());
    }

    fn sever(self: Arc<Self>) {
        DirectLink(self).with(Sides::sever);
    }

    fn cut(self: Arc<Self>) {
        DirectLink(self).with(Sides::cut);
    }
}

impl Sides {
    /// One side.
    pub(super) fn side(&mut self, end: End) -> &mut QueuePair {
        &mut self.sides[end as usize]
    }

    /// Posts a chain of sends from `end`.
    pub(super) fn post_sends(&mut self, end: End, chain: &[SendRequest]) -> Result<(), TransportError> {
        let posted = chain.iter().try_for_each(|request| self.side(end).post_send(*request));
        self.progress(end);
        posted
    }

    /// Posts receives at `end`, and lets the peer's waiting sends find them.
    pub(super) fn post_receives(&mut self, end: End, batch: &[ReceiveRequest]) -> Result<(), TransportError> {
        let posted = batch.iter().try_for_each(|request| self.side(end).post_receive(*request));
        self.side(end.other()).resume();
        self.progress(end.other());
        posted
    }

    /// The active end asks to connect. `false`: there is no way for that to go.
    pub(super) fn ask(&mut self) -> bool {
        self.opening = Opening::Asked;
        match self.passage {
            Passage::Open => true,
            Passage::Severed => {
                self.reject(REASON_NO_LISTENER);
                false
            }
            Passage::Cut => false,
        }
    }

    /// Rejects the active end's request.
    pub(super) fn reject(&mut self, reason: i32) {
        if self.opening == Opening::Asked && self.passage != Passage::Cut {
            self.side(End::Active).push_cm_event(CmEvent::Rejected { reason });
        }
        self.opening = Opening::Answered;
    }

    /// The passive end accepted: both queue pairs are connected, unless the active end is gone by now.
    pub(super) fn connect(&mut self) {
        let asked = std::mem::replace(&mut self.opening, Opening::Answered) == Opening::Asked;
        if self.passage == Passage::Cut {
            return;
        }
        if !asked || self.side(End::Active).state == QueuePairState::Error {
            return self.side(End::Passive).push_disconnected();
        }
        for end in [End::Active, End::Passive] {
            // What one side grants rules the sends of the other.
            let peer = self.side(end.other()).terms();
            let side = self.side(end);
            side.agree(peer);
            side.state = QueuePairState::Ready;
            side.push_cm_event(CmEvent::Established);
        }
    }

    /// `end` goes to error; if they were connected, its peer gets a disconnect.
    pub(super) fn disconnect(&mut self, end: End) {
        let was_connected = self.side(end).state != QueuePairState::Init;
        self.side(end).fail();
        if was_connected && self.passage == Passage::Open {
            self.side(end.other()).push_disconnected();
        }
    }

    /// Ends the connection for both sides, as an operator would.
    pub(super) fn sever(&mut self) {
        if self.passage == Passage::Cut {
            return;
        }
        self.passage = Passage::Severed;
        if self.opening == Opening::Asked {
            self.reject(REASON_NO_LISTENER);
        }
        for side in &mut self.sides {
            if side.state == QueuePairState::Ready {
                side.push_disconnected();
            }
        }
    }

    /// From now on nothing passes, and neither end is notified.
    pub(super) fn cut(&mut self) {
        self.passage = Passage::Cut;
        self.sides.iter_mut().for_each(|side| side.sends.unanswered());
    }

    /// Does what has become due.
    pub(super) fn advance(&mut self) {
        for end in [End::Active, End::Passive] {
            self.side(end).expire();
            self.progress(end);
        }
    }

    /// The peer of `end` may have receives for it again.
    pub(super) fn resume(&mut self) {
        for end in [End::Active, End::Passive] {
            self.side(end).resume();
            self.progress(end);
        }
    }

    /// Carries out the waiting sends of `end`, in order, as far as the peer's receives allow.
    fn progress(&mut self, end: End) {
        while let Some(asked) = self.side(end).ask() {
            let [active, passive] = &mut self.sides;
            let (requester, responder) = match end {
                End::Active => (active, passive),
                End::Passive => (passive, active),
            };
            // A peer in error acknowledges nothing, nor does one that cannot be reached.
            if self.passage != Passage::Open || responder.state != QueuePairState::Ready {
                return requester.rewind();
            }
            carry_out(&asked, requester, responder);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.sides.iter().filter_map(|side| side.sends.deadline(side.plan.retry_timeout())).min()
    }

    /// Sees to it that somebody keeps time: the waker to wake, or whether to start the task.
    fn check_timer(&mut self) -> (Option<Waker>, bool) {
        let deadline = self.deadline();
        match (&self.timer, deadline) {
            // Without a runtime there is no clock, and no task can wait for it.
            (Timer::Absent, Some(_)) if Handle::try_current().is_ok() => {
                self.timer = Timer::Awake;
                (None, true)
            }
            (Timer::Waiting { until, .. }, deadline) if deadline.is_none_or(|deadline| deadline < *until) => {
                match std::mem::replace(&mut self.timer, Timer::Awake) {
                    Timer::Waiting { waker, .. } => (Some(waker), false),
                    Timer::Absent | Timer::Awake => (None, false),
                }
            }
            _ => (None, false),
        }
    }
}

fn carry_out(asked: &InFlightSend, requester: &mut QueuePair, responder: &mut QueuePair) {
    let (op, len) = (asked.request.op, asked.request.local.len);
    let answered = match responder.admit(op, len) {
        // The two regions differ: each belongs to one side.
        Ok(place) if matches!(op, SendOp::Read { .. }) => {
            if let Some((source, from)) = place {
                source.copy_over(from, &asked.local, asked.range.start);
            }
            requester.read_done();
            Ok(())
        }
        Ok(place) => {
            let copied = place
                .is_none_or(|(target, to)| asked.local.copy_over(asked.range.clone(), &target, to.start));
            if copied {
                responder.settle(op, len);
                requester.acknowledged(asked.sequence)
            } else {
                requester.denied(asked.sequence, FailureStatus::LocalProtection)
            }
        }
        Err(Refusal::NotReady) => requester.not_ready(asked.sequence, responder.plan.rnr_timer()),
        Err(Refusal::Denied(status)) => requester.denied(asked.sequence, status),
    };
    debug_assert!(answered.is_ok(), "a direct answer is to what was asked");
}
