//! One end of a connection between processes, without its socket: what frames do, and which frames are due.

use std::collections::VecDeque;
use std::ops::Range;
use std::task::Waker;

use tokio::time::Instant;
use valkey_rdma_proto::work::{FailureStatus, ReceiveRequest, SendOp, SendRequest};

use super::frame::Frame;
use crate::device::CmEvent;
use crate::emulated::memory::Memory;
use crate::emulated::queue_pair::requester::UnexpectedAnswer;
use crate::emulated::queue_pair::responder::{Refusal, Span};
use crate::emulated::queue_pair::{QueuePair, QueuePairState};
use crate::emulated::{REASON_CONSUMER, REASON_NO_LISTENER, earlier};
use crate::error::TransportError;

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

/// The peer broke the rules of the frames.
#[derive(Debug)]
pub(super) struct Violation(pub(super) &'static str);

/// Bytes that are on their way here.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) len: u32,
    /// Where they go; nowhere if they are not wanted.
    pub(super) place: Span,
    then: Then,
}

/// What follows once bytes are all there.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// The peer's request has been carried out.
    Settle { sequence: u64, op: SendOp },
    /// This side's oldest request, a read, is done.
    ReadDone,
    /// They were not wanted.
    Nothing,
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

    // --- The program's side ----------------------------------------------------------------------------------------

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

    // --- The peer's side -------------------------------------------------------------------------------------------

    /// Acts on a frame. `Some`: its bytes follow, unless it has none.
    pub(super) fn handle(&mut self, frame: Frame) -> Result<Option<Incoming>, Violation> {
        match (self.phase, frame) {
            // In flight while this side left.
            (Phase::Leaving { .. }, Frame::Disconnect) => self.peer_gone(),
            (Phase::Leaving { .. }, Frame::Request { op, len, .. }) => return Ok(unwanted(op, len)),
            (Phase::Leaving { .. }, Frame::Bytes { len, .. }) => return Ok(Some(Incoming::unwanted(len))),
            (Phase::Leaving { .. }, _) => {}
            (Phase::Asked, Frame::Accept { terms }) => {
                self.side.agree(terms);
                self.side.state = QueuePairState::Ready;
                self.side.push_cm_event(CmEvent::Established);
                self.opening = Some(Frame::Ready);
                self.phase = Phase::Connected;
            }
            (Phase::Asked, Frame::Reject { reason }) => {
                self.side.push_cm_event(CmEvent::Rejected { reason });
                self.phase = Phase::Gone;
            }
            (Phase::Accepted, Frame::Ready) => {
                self.side.push_cm_event(CmEvent::Established);
                self.phase = Phase::Connected;
            }
            (Phase::Requested | Phase::Accepted | Phase::Connected, Frame::Disconnect) => self.peer_gone(),
            (Phase::Connected, Frame::Request { sequence, op, len }) => {
                return self.request(sequence, op, len);
            }
            (Phase::Accepted | Phase::Connected, Frame::Bytes { sequence, len }) => {
                return self.read_bytes(sequence, len).map(Some);
            }
            // A passive end may send, and be answered, before it hears that the active end is ready.
            (Phase::Accepted | Phase::Connected, frame) => self.answer(frame)?,
            _ => return Err(Violation("an unexpected frame")),
        }
        Ok(None)
    }

    /// The bytes of a request are all there.
    pub(super) fn landed(&mut self, landing: &Incoming) {
        match landing.then {
            Then::Settle { sequence, op } => {
                if self.side.settle(op, landing.len) {
                    self.done = Some(sequence);
                }
            }
            Then::ReadDone => self.side.read_done(),
            Then::Nothing => {}
        }
    }

    /// Whether bytes may still be put into memory.
    pub(super) fn takes_bytes(&self) -> bool {
        self.side.state == QueuePairState::Ready && !self.cut
    }

    /// Whether these bytes may still be taken from memory. After a failure the program may use again what it has sent. What
    /// the peer reads, it may change at any time.
    pub(super) fn sends_bytes(&self, bytes: &OutgoingBytes) -> bool {
        let connected = matches!(self.phase, Phase::Accepted | Phase::Connected);
        self.takes_bytes() || bytes.answer && connected && !self.cut
    }

    /// The peer is gone, or as good as.
    pub(super) fn peer_gone(&mut self) {
        match self.phase {
            Phase::Asked => self.side.push_cm_event(CmEvent::Rejected { reason: REASON_NO_LISTENER }),
            Phase::Accepted | Phase::Connected => {
                self.side.push_disconnected();
                self.side.sends.unanswered();
            }
            // Reported when the program answers the request.
            Phase::Requested => {}
            Phase::Fresh { .. } => {
                self.phase = Phase::NoListener;
                return;
            }
            Phase::Leaving { connected } => {
                if connected {
                    self.side.push_disconnected();
                }
                return;
            }
            Phase::NoListener | Phase::Gone => return,
        }
        self.phase = Phase::Gone;
    }

    fn request(&mut self, sequence: u64, op: SendOp, len: u32) -> Result<Option<Incoming>, Violation> {
        if sequence > self.expected && self.awaiting_retry || self.side.state != QueuePairState::Ready {
            return Ok(unwanted(op, len));
        }
        if sequence != self.expected {
            return Err(Violation("a request out of sequence"));
        }
        let is_read = matches!(op, SendOp::Read { .. });
        let admitted = if is_read && self.reads.len() >= self.side.reads_granted().into() {
            self.side.fail();
            Err(Refusal::Denied(FailureStatus::RemoteInvalidRequest))
        } else {
            self.side.admit(op, len)
        };
        match admitted {
            Ok(place) => {
                self.expected += 1;
                self.awaiting_retry = false;
                if is_read {
                    self.reads.push_back(Read { sequence, len, source: place });
                    return Ok(None);
                }
                Ok(Some(Incoming { len, place, then: Then::Settle { sequence, op } }))
            }
            Err(Refusal::NotReady) => {
                self.not_ready = Some(Frame::NotReady { sequence, timer: self.side.plan.rnr_timer() });
                self.awaiting_retry = true;
                self.resume = false;
                Ok(unwanted(op, len))
            }
            Err(Refusal::Denied(status)) => {
                self.denied = Some(Frame::Denied { sequence, status });
                Ok(unwanted(op, len))
            }
        }
    }

    /// What a read of this side asked for follows.
    fn read_bytes(&mut self, sequence: u64, len: u32) -> Result<Incoming, Violation> {
        // In error everything was flushed, so no answer fits any more.
        if self.side.state != QueuePairState::Ready {
            return Ok(Incoming::unwanted(len));
        }
        let place = self.side.read_place(sequence, len);
        let place = place.map_err(|UnexpectedAnswer| Violation("bytes that no read asked for"))?;
        Ok(Incoming { len, place, then: Then::ReadDone })
    }

    fn answer(&mut self, frame: Frame) -> Result<(), Violation> {
        let answered = match frame {
            // A queue pair in error answers nothing, and its peer's sends are to run into their deadline.
            Frame::Probe => {
                self.alive = self.side.state == QueuePairState::Ready;
                Ok(())
            }
            Frame::Alive => Ok(()),
            Frame::Resume => {
                self.side.resume();
                Ok(())
            }
            // In error everything was flushed, so no answer fits any more.
            _ if self.side.state != QueuePairState::Ready => Ok(()),
            Frame::Done { sequence } => self.side.acknowledged(sequence),
            Frame::NotReady { sequence, timer } => self.side.not_ready(sequence, timer),
            Frame::Denied { sequence, status } => self.side.denied(sequence, status),
            _ => return Err(Violation("an unexpected frame")),
        };
        answered.map_err(|UnexpectedAnswer| Violation("an answer to nothing"))
    }

    // --- The driver's side -----------------------------------------------------------------------------------------

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

impl Incoming {
    fn unwanted(len: u32) -> Self {
        Self { len, place: None, then: Then::Nothing }
    }
}

/// What follows a request that is not carried out: a read brings no bytes.
fn unwanted(op: SendOp, len: u32) -> Option<Incoming> {
    (!matches!(op, SendOp::Read { .. })).then(|| Incoming::unwanted(len))
}

#[cfg(test)]
mod tests;
