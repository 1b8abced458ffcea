//! One end of a connection between processes, without its socket: what the program asks for, and which frames are due.

mod peer;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use tokio::time::Instant;
use valkey_rdma_proto::work::{ReceiveRequest, SendOp, SendRequest};

use super::frame::Frame;
use crate::device::report::{CmEvent, REASON_CONSUMER};
use crate::emulated::device::Disturb;
use crate::emulated::queue_pair::responder::Span;
use crate::emulated::queue_pair::{Memory, QueuePair, QueuePairState};
use crate::emulated::{REASON_NO_LISTENER, earlier, wake};
use crate::error::TransportError;
use crate::sync::{Mutex, lock};

pub(super) use self::peer::{Incoming, Violation};

/// How far the connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Active end, nothing sent.
    Fresh { port: u16 },
    /// Active end that found no listener.
    NoListener,
    /// Active end, connect request sent.
    Asked,
    /// Passive end, request not answered.
    Requested,
    /// Passive end, acceptance sent.
    Accepted,
    /// Both know of the other's consent.
    Connected,
    /// Ended on this side: the peer gets a `Disconnect` if possible. If they were connected, its own is awaited.
    Leaving { connected: bool },
    /// Ended by the peer, or by its bytes.
    Gone,
}

/// One end of a connection.
#[derive(Debug)]
pub(in crate::emulated) struct Session {
    pub(super) side: QueuePair,
    phase: Phase,
    /// Frames that are due, of which there is one of each sort at most: a peer cannot make them pile up.
    opening: Option<Frame>,
    done: Option<u64>,
    not_ready: Option<Frame>,
    resume: bool,
    denied: Option<Frame>,
    /// The peer's reads that were admitted and not answered, at most as many as were granted.
    reads: VecDeque<Read>,
    alive: bool,
    probe: bool,
    closing: Option<Frame>,
    /// Sequence number of the peer's next request.
    expected: u64,
    /// The peer got `NotReady`: no receive is posted. What comes before its next try is dropped.
    awaiting_retry: bool,
    /// Whether the peer was probed since it was last heard.
    probed: bool,
    /// Nothing passes any more.
    cut: bool,
    /// The task to wake when frames are due.
    pub(super) driver: Option<Waker>,
}

/// A read of the peer's.
#[derive(Debug)]
struct Read {
    sequence: u64,
    len: u32,
    source: Span,
}

/// A frame to be sent, and the bytes after it.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) frame: Frame,
    pub(super) bytes: Option<OutgoingBytes>,
}

/// Bytes to be sent.
#[derive(Debug)]
pub(super) struct OutgoingBytes {
    pub(super) memory: Memory,
    pub(super) range: Range<usize>,
    /// The peer has read them.
    answer: bool,
}

impl Session {
    pub(super) fn new(side: QueuePair, phase: Phase) -> Self {
        Self {
            side,
            phase,
            opening: None,
            done: None,
            not_ready: None,
            resume: false,
            denied: None,
            reads: VecDeque::new(),
            alive: false,
            probe: false,
            closing: None,
            expected: 0,
            awaiting_retry: false,
            probed: false,
            cut: false,
            driver: None,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    /// Asks the peer to connect, or agrees to its request.
    pub(in crate::emulated) fn establish(&mut self) {
        let terms = self.side.terms();
        match self.phase {
            Phase::Fresh { port } => {
                self.opening = Some(Frame::Connect { port, terms });
                self.phase = Phase::Asked;
            }
            Phase::Requested => {
                self.opening = Some(Frame::Accept { terms });
                self.side.state = QueuePairState::Ready;
                self.phase = Phase::Accepted;
            }
            Phase::NoListener => self.side.push_cm_event(CmEvent::Rejected { reason: REASON_NO_LISTENER }),
            Phase::Gone => self.side.push_disconnected(),
            Phase::Asked | Phase::Accepted | Phase::Connected | Phase::Leaving { .. } => {}
        }
    }

    pub(in crate::emulated) fn post_sends(&mut self, chain: &[SendRequest]) -> Result<(), TransportError> {
        let posted = chain.iter().try_for_each(|request| self.side.post_send(*request));
        if self.cut || self.phase == Phase::Gone {
            self.side.sends.unanswered();
        }
        posted
    }

    pub(super) fn post_receives(&mut self, batch: &[ReceiveRequest]) -> Result<(), TransportError> {
        let posted = batch.iter().try_for_each(|request| self.side.post_receive(*request));
        self.receives_posted();
        posted
    }

    /// Notifies a peer that waits for receives.
    pub(super) fn receives_posted(&mut self) {
        self.resume |= self.awaiting_retry && self.side.has_receive();
    }

    /// Whether the peer must be notified that receives are posted.
    pub(super) fn resumes(&self) -> bool {
        self.resume
    }

    pub(in crate::emulated) fn disconnect(&mut self) {
        self.side.fail();
        self.closing = match self.phase {
            Phase::Requested => Some(Frame::Reject { reason: REASON_CONSUMER }),
            // No request was sent, so nothing is owed.
            Phase::Fresh { .. } | Phase::NoListener => None,
            Phase::Asked | Phase::Accepted | Phase::Connected => Some(Frame::Disconnect),
            Phase::Leaving { .. } | Phase::Gone => return,
        };
        let connected = matches!(self.phase, Phase::Accepted | Phase::Connected);
        self.reads.clear();
        self.phase = Phase::Leaving { connected };
    }

    /// Ends the connection as an operator would. The peer sees the end of the socket.
    pub(super) fn sever(&mut self) {
        self.peer_gone();
    }

    /// From now on nothing passes, and neither end is notified.
    pub(super) fn cut(&mut self) {
        self.cut = true;
        self.side.sends.unanswered();
    }

    /// The next frame to send.
    pub(super) fn next_frame(&mut self) -> Option<Outgoing> {
        let alone = |frame| Some(Outgoing { frame, bytes: None });
        if let Some(frame) = self.opening.take() {
            return alone(frame);
        }
        // In order, because each answers what was before it too.
        let oldest_read = self.reads.front().map(|read| read.sequence);
        if let Some(sequence) = self.done.take_if(|done| oldest_read.is_none_or(|read| *done < read)) {
            return alone(Frame::Done { sequence });
        }
        if let Some(Read { sequence, len, source }) = self.reads.pop_front() {
            let bytes = source.map(|(memory, range)| OutgoingBytes { memory, range, answer: true });
            return Some(Outgoing { frame: Frame::Bytes { sequence, len }, bytes });
        }
        if let Some(frame) = self.not_ready.take() {
            return alone(frame);
        }
        if std::mem::take(&mut self.resume) {
            return alone(Frame::Resume);
        }
        if let Some(frame) = self.denied.take() {
            return alone(frame);
        }
        if std::mem::take(&mut self.alive) {
            return alone(Frame::Alive);
        }
        if std::mem::take(&mut self.probe) {
            return alone(Frame::Probe);
        }
        if let Some(frame) = self.closing.take() {
            return alone(frame);
        }
        if !matches!(self.phase, Phase::Accepted | Phase::Connected) {
            return None;
        }
        let asked = self.side.ask()?;
        self.side.sends.unanswered();
        let (sequence, op, len) = (asked.sequence, asked.request.op, asked.request.local.len);
        let bytes = (len > 0 && !matches!(op, SendOp::Read { .. })).then_some(OutgoingBytes {
            memory: asked.local,
            range: asked.range,
            answer: false,
        });
        Some(Outgoing { frame: Frame::Request { sequence, op, len }, bytes })
    }

    /// Something came from the peer's device, or it took what the socket would not take before.
    pub(super) fn heard(&mut self) {
        self.side.sends.heard();
        self.probed = false;
    }

    /// When [`expire`](Self::expire) has something to do, or a frame falls due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let retry_timeout = self.side.plan.retry_timeout();
        let probe = self.side.sends.unanswered_since().filter(|_| !self.probed);
        let probe = probe.map(|since| since + retry_timeout / 2);
        earlier(probe, self.side.sends.deadline(retry_timeout))
    }

    /// Does what has become due.
    pub(super) fn expire(&mut self) {
        let patience = self.side.plan.retry_timeout() / 2;
        if !self.probed
            && self.side.sends.unanswered_since().is_some_and(|since| since + patience <= Instant::now())
        {
            self.probed = true;
            self.probe = true;
        }
        self.side.expire();
    }
}

/// One end of a connection between processes.
#[derive(Clone, Debug)]
pub(in crate::emulated) struct SocketLink(Arc<Mutex<Session>>);

impl SocketLink {
    /// The active end that found no listener.
    pub(super) fn no_listener(side: QueuePair) -> Self {
        Self::idle(side, Phase::NoListener)
    }

    /// Puts another side in place of one that nothing was posted to.
    pub(super) fn replace_side(&self, mut side: QueuePair) {
        self.with(|session| {
            side.agree(session.side.peer);
            session.side = side;
        });
    }

    /// Without a task.
    pub(super) fn idle(side: QueuePair, phase: Phase) -> Self {
        let plan = side.plan.clone();
        let link = Self(Arc::new(Mutex::new(Session::new(side, phase))));
        plan.watch(Arc::downgrade(&link.0));
        link
    }

    /// Runs `step` under the lock, then wakes the tasks that wait for what it brought.
    pub(super) fn with<R>(&self, step: impl FnOnce(&mut Session) -> R) -> R {
        let (result, wakers) = {
            let mut session = lock(&self.0);
            let result = step(&mut session);
            (result, session.side.take_wakers())
        };
        wake(wakers);
        result
    }

    /// As [`with`](Self::with), for what gives the task something to do.
    pub(in crate::emulated) fn ring<R>(&self, step: impl FnOnce(&mut Session) -> R) -> R {
        let (result, driver) = self.with(|session| (step(session), session.driver.take()));
        driver.into_iter().for_each(Waker::wake);
        result
    }

    /// Runs `step` on this end's side, for what concerns no other side.
    pub(in crate::emulated) fn side<R>(&self, step: impl FnOnce(&mut QueuePair) -> R) -> R {
        self.with(|session| step(&mut session.side))
    }

    /// Posts receives. The task need not know, unless the peer waits for them.
    pub(in crate::emulated) fn post_receives(&self, batch: &[ReceiveRequest]) -> Result<(), TransportError> {
        let (posted, driver) = self.with(|session| {
            let posted = session.post_receives(batch);
            let due = session.resumes();
            (posted, session.driver.take_if(|_| due))
        });
        driver.into_iter().for_each(Waker::wake);
        posted
    }
}

impl Disturb for Mutex<Session> {
    fn resume(self: Arc<Self>) {
        SocketLink(self).ring(Session::receives_posted);
    }

    fn reset_timers(self: Arc<Self>) {
        SocketLink(self).ring(|_| ());
    }

    fn sever(self: Arc<Self>) {
        SocketLink(self).ring(Session::sever);
    }

    fn cut(self: Arc<Self>) {
        SocketLink(self).ring(Session::cut);
    }
}

#[cfg(test)]
mod tests;
