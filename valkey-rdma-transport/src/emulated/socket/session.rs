//! One end of a connection between processes, without its socket: what frames do, and which frames are due.

use std::ops::Range;
use std::task::Waker;

use tokio::time::Instant;
use valkey_rdma_proto::work::{ReceiveRequest, SendOp, SendRequest};

use super::frame::Frame;
use crate::device::CmEvent;
use crate::emulated::memory::Memory;
use crate::emulated::queue_pair::requester::UnexpectedAnswer;
use crate::emulated::queue_pair::responder::{Refusal, WriteTarget};
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

/// Bytes of a request that are on their way here.
#[derive(Debug)]
pub(super) struct IncomingWrite {
    pub(super) sequence: u64,
    pub(super) op: SendOp,
    pub(super) len: u32,
    /// Where they go; nowhere if the request was not admitted.
    pub(super) place: WriteTarget,
    admitted: bool,
}

/// A frame to be sent, and the bytes after it.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) frame: Frame,
    pub(super) bytes: Option<(Memory, Range<usize>)>,
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
        let rnr_retry_count = self.side.plan.rnr_retry_count();
        match self.phase {
            Phase::Fresh { port } => {
                self.opening = Some(Frame::Connect { port, rnr_retry_count });
                self.phase = Phase::Asked;
            }
            Phase::Requested => {
                self.opening = Some(Frame::Accept { rnr_retry_count });
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
    pub(super) fn handle(&mut self, frame: Frame) -> Result<Option<IncomingWrite>, Violation> {
        match (self.phase, frame) {
            // In flight while this side left.
            (Phase::Leaving { .. }, Frame::Disconnect) => self.peer_gone(),
            (Phase::Leaving { .. }, Frame::Request { sequence, op, len }) => {
                return Ok(Some(IncomingWrite { sequence, op, len, place: None, admitted: false }));
            }
            (Phase::Leaving { .. }, _) => {}
            (Phase::Asked, Frame::Accept { rnr_retry_count }) => {
                self.side.sends.rnr_retry_count = rnr_retry_count;
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
                return self.request(sequence, op, len).map(Some);
            }
            // A passive end may send, and be answered, before it hears that the active end is ready.
            (Phase::Accepted | Phase::Connected, frame) => self.answer(frame)?,
            _ => return Err(Violation("an unexpected frame")),
        }
        Ok(None)
    }

    /// The bytes of a request are all there.
    pub(super) fn landed(&mut self, landing: &IncomingWrite) {
        if landing.admitted && self.side.settle(landing.op, landing.len) {
            self.done = Some(landing.sequence);
        }
    }

    /// Whether a request's bytes may still be put into memory.
    pub(super) fn takes_bytes(&self) -> bool {
        self.side.state == QueuePairState::Ready && !self.cut
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

    fn request(&mut self, sequence: u64, op: SendOp, len: u32) -> Result<IncomingWrite, Violation> {
        let dropped = IncomingWrite { sequence, op, len, place: None, admitted: false };
        if sequence > self.expected && self.awaiting_retry || self.side.state != QueuePairState::Ready {
            return Ok(dropped);
        }
        if sequence != self.expected {
            return Err(Violation("a request out of sequence"));
        }
        match self.side.admit(op, len) {
            Ok(place) => {
                self.expected += 1;
                self.awaiting_retry = false;
                Ok(IncomingWrite { place, admitted: true, ..dropped })
            }
            Err(Refusal::NotReady) => {
                self.not_ready = Some(Frame::NotReady { sequence, timer: self.side.plan.rnr_timer() });
                self.awaiting_retry = true;
                self.resume = false;
                Ok(dropped)
            }
            Err(Refusal::Denied(status)) => {
                self.denied = Some(Frame::Denied { sequence, status });
                Ok(dropped)
            }
        }
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
        if let Some(sequence) = self.done.take() {
            return alone(Frame::Done { sequence });
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
        let bytes = (len > 0).then_some((asked.source, asked.range));
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

#[cfg(test)]
mod tests;
