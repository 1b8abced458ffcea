//! What the peer's frames do to this end, and where their bytes go.

use valkey_rdma_proto::work::{FailureStatus, SendOp};

use super::{OutgoingBytes, Phase, Read, Session};
use crate::device::CmEvent;
use crate::emulated::REASON_NO_LISTENER;
use crate::emulated::queue_pair::QueuePairState;
use crate::emulated::queue_pair::requester::UnexpectedAnswer;
use crate::emulated::queue_pair::responder::{Refusal, Span};
use crate::emulated::socket::frame::Frame;

/// The peer broke the rules of the frames.
#[derive(Debug)]
pub(in crate::emulated::socket) struct Violation(pub(in crate::emulated::socket) &'static str);

/// Bytes that are on their way here.
#[derive(Debug)]
pub(in crate::emulated::socket) struct Incoming {
    pub(in crate::emulated::socket) len: u32,
    /// Where they go; nowhere if they are not wanted.
    pub(in crate::emulated::socket) place: Span,
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

impl Session {
    /// Acts on a frame. `Some`: its bytes follow, unless it has none.
    pub(in crate::emulated::socket) fn handle(
        &mut self,
        frame: Frame,
    ) -> Result<Option<Incoming>, Violation> {
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
    pub(in crate::emulated::socket) fn landed(&mut self, landing: &Incoming) {
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
    pub(in crate::emulated::socket) fn takes_bytes(&self) -> bool {
        self.side.state == QueuePairState::Ready && !self.cut
    }

    /// Whether these bytes may still be taken from memory. After a failure the program may use again what it has sent. What
    /// the peer reads, it may change at any time.
    pub(in crate::emulated::socket) fn sends_bytes(&self, bytes: &OutgoingBytes) -> bool {
        let connected = matches!(self.phase, Phase::Accepted | Phase::Connected);
        self.takes_bytes() || bytes.answer && connected && !self.cut
    }

    /// The peer is gone, or as good as.
    pub(in crate::emulated::socket) fn peer_gone(&mut self) {
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
