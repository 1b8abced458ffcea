//! The link within one process: posting a send carries it out at once, by copying from one side's region into the
//! other's.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker, ready};

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};
use valkey_rdma_proto::work::{FailureStatus, ReceiveRequest, SendRequest};

use super::requester::Asked;
use super::responder::Refusal;
use super::side::{QueuePairState, Side};
use super::{REASON_NO_LISTENER, lock, wake};
use crate::device::CmEvent;
use crate::error::TransportError;

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

/// A [`DirectLink`] that does not keep it.
#[derive(Debug)]
pub(super) struct WeakDirectLink(Weak<Mutex<Sides>>);

#[derive(Debug)]
pub(super) struct Sides {
    sides: [Side; 2],
    opening: Opening,
    passage: Passage,
    keeper: Keeper,
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
    /// Nothing does, and both have been told.
    Severed,
    /// Nothing does, and nobody is told.
    Cut,
}

/// The task that keeps time for a link on which something has to happen later. Most links never need one.
#[derive(Debug)]
enum Keeper {
    Absent,
    Waiting {
        until: Instant,
        waker: Waker,
    },
    /// Started, or about to look at the link.
    Awake,
}

impl DirectLink {
    pub(super) fn new(active: Side, passive: Side) -> Self {
        Self(Arc::new(Mutex::new(Sides {
            sides: [active, passive],
            opening: Opening::Fresh,
            passage: Passage::Open,
            keeper: Keeper::Absent,
        })))
    }

    pub(super) fn downgrade(&self) -> WeakDirectLink {
        WeakDirectLink(Arc::downgrade(&self.0))
    }

    /// Runs `step` under the lock, then wakes whoever it has something for.
    pub(super) fn with<R>(&self, step: impl FnOnce(&mut Sides) -> R) -> R {
        let (result, wakers, start) = {
            let mut sides = self.lock();
            let result = step(&mut sides);
            let (keeper, start) = sides.call_keeper();
            let [active, passive] = &mut sides.sides;
            let ([a, b], [c, d]) = (active.take_wakers(), passive.take_wakers());
            (result, [a, b, c, d, keeper], start)
        };
        wake(wakers);
        if start {
            self.start_keeper();
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Sides> {
        lock(&self.0)
    }

    fn start_keeper(&self) {
        tokio::spawn(KeeperTask { link: self.downgrade(), sleep: None, over: false });
    }
}

/// What a [`Keeper`] runs.
struct KeeperTask {
    link: WeakDirectLink,
    sleep: Option<Pin<Box<Sleep>>>,
    /// The link knows that it has no keeper any more.
    over: bool,
}

impl Future for KeeperTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            let Some(link) = this.link.upgrade() else { return Poll::Ready(()) };
            let deadline = link.with(|sides| {
                sides.advance();
                let deadline = sides.deadline();
                sides.keeper = match deadline {
                    Some(until) => Keeper::Waiting { until, waker: cx.waker().clone() },
                    None => Keeper::Absent,
                };
                deadline
            });
            this.over = deadline.is_none();
            let Some(deadline) = deadline else { return Poll::Ready(()) };
            let sleep = this.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            sleep.as_mut().reset(deadline);
            ready!(sleep.as_mut().poll(cx));
        }
    }
}

impl Drop for KeeperTask {
    /// Its runtime may end before the link does, which then needs another one.
    fn drop(&mut self) {
        if let Some(link) = self.link.upgrade().filter(|_| !self.over) {
            link.lock().keeper = Keeper::Absent;
        }
    }
}

impl WeakDirectLink {
    pub(super) fn upgrade(&self) -> Option<DirectLink> {
        self.0.upgrade().map(DirectLink)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl Sides {
    /// One side.
    pub(super) fn side(&mut self, end: End) -> &mut Side {
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

    /// Tells the active end that its request is turned down.
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
            let granted = self.side(end.other()).conditions.rnr_retry_count();
            let side = self.side(end);
            side.sends.rnr_retry_count = granted;
            side.state = QueuePairState::Ready;
            side.push_cm_event(CmEvent::Established);
        }
    }

    /// `end` goes to error; its peer is told if they were connected, whichever of them went first.
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

    /// From now on nothing passes, and nobody is told.
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
                return requester.unask();
            }
            carry_out(&asked, requester, responder);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.sides.iter().filter_map(|side| side.sends.deadline(side.conditions.retry_timeout())).min()
    }

    /// Sees to it that somebody keeps time: the waker to wake, or whether to start the task.
    fn call_keeper(&mut self) -> (Option<Waker>, bool) {
        let deadline = self.deadline();
        match (&self.keeper, deadline) {
            // Without a runtime there is no clock, and nobody who could wait for what it brings.
            (Keeper::Absent, Some(_)) if Handle::try_current().is_ok() => {
                self.keeper = Keeper::Awake;
                (None, true)
            }
            (Keeper::Waiting { until, .. }, deadline)
                if deadline.is_none_or(|deadline| deadline < *until) =>
            {
                match std::mem::replace(&mut self.keeper, Keeper::Awake) {
                    Keeper::Waiting { waker, .. } => (Some(waker), false),
                    Keeper::Absent | Keeper::Awake => (None, false),
                }
            }
            _ => (None, false),
        }
    }
}

fn carry_out(asked: &Asked, requester: &mut Side, responder: &mut Side) {
    let (op, len) = (asked.request.op, asked.request.local.len);
    let answered = match responder.admit(op, len) {
        Ok(place) => {
            // The two regions differ: each belongs to one side.
            let read = place.is_none_or(|(target, to)| {
                asked.source.copy_to(asked.range.clone(), &mut &mut target.lock()[to])
            });
            if read {
                responder.settle(op, len);
                requester.acknowledged(asked.sequence)
            } else {
                requester.denied(asked.sequence, FailureStatus::LocalProtection)
            }
        }
        Err(Refusal::NotReady) => requester.not_ready(asked.sequence, responder.conditions.rnr_timer()),
        Err(Refusal::Denied(status)) => requester.denied(asked.sequence, status),
    };
    debug_assert!(answered.is_ok(), "a direct answer is to what was asked");
}
