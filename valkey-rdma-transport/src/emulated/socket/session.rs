//! One end of a connection between processes, without its socket: what frames do, and which frames are due.

use std::ops::Range;
use std::task::Waker;

use tokio::time::Instant;
use valkey_rdma_proto::work::{ReceiveRequest, SendOp, SendRequest};

use super::frame::Frame;
use crate::device::CmEvent;
use crate::emulated::memory::Memory;
use crate::emulated::requester::NotAsked;
use crate::emulated::responder::{Place, Refusal};
use crate::emulated::side::{QueuePairState, Side};
use crate::emulated::{REASON_CONSUMER, REASON_NO_LISTENER};
use crate::error::TransportError;

/// How far the connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Active end, nothing sent.
    Fresh { port: u16 },
    /// Active end that found nobody.
    Nobody,
    /// Active end, connect request sent.
    Asked,
    /// Passive end, request not answered.
    Requested,
    /// Passive end, acceptance sent.
    Accepted,
    /// Both know of the other's consent.
    Connected,
    /// Ended on this side: the peer is to be told, if it can be.
    Leaving,
    /// Ended by the peer, or by its bytes.
    Gone,
}

/// One end of a connection.
#[derive(Debug)]
pub(in crate::emulated) struct Session {
    pub(super) side: Side,
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
    /// The peer was told that no receive is posted. What comes before its next try is dropped.
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
pub(super) struct Landing {
    pub(super) sequence: u64,
    pub(super) op: SendOp,
    pub(super) len: u32,
    /// Where they go; nowhere if the request was not admitted.
    pub(super) place: Place,
    admitted: bool,
}

/// A frame to be sent, and the bytes after it.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) frame: Frame,
    pub(super) bytes: Option<(Memory, Range<usize>)>,
}

impl Session {
    pub(super) fn new(side: Side, phase: Phase) -> Self {
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
        let rnr_retry_count = self.side.conditions.rnr_retry_count();
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
            Phase::Nobody => self.side.push_cm_event(CmEvent::Rejected { reason: REASON_NO_LISTENER }),
            Phase::Gone => self.side.push_disconnected(),
            Phase::Asked | Phase::Accepted | Phase::Connected | Phase::Leaving => {}
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

    /// Tells a peer that waits for receives.
    pub(super) fn receives_posted(&mut self) {
        self.resume |= self.awaiting_retry && self.side.has_receive();
    }

    /// Whether the peer is to be told that receives are posted.
    pub(super) fn resumes(&self) -> bool {
        self.resume
    }

    pub(in crate::emulated) fn disconnect(&mut self) {
        self.side.fail();
        let closing = match self.phase {
            Phase::Requested => Frame::Reject { reason: REASON_CONSUMER },
            Phase::Leaving | Phase::Gone => return,
            _ => Frame::Disconnect,
        };
        self.closing = Some(closing);
        self.phase = Phase::Leaving;
    }

    /// Ends the connection as an operator would. The peer sees the end of the socket.
    pub(super) fn sever(&mut self) {
        self.peer_gone();
    }

    /// From now on nothing passes, and nobody is told.
    pub(super) fn cut(&mut self) {
        self.cut = true;
        self.side.sends.unanswered();
    }

    // --- The peer's side -------------------------------------------------------------------------------------------

    /// Acts on a frame. `Some`: its bytes follow, unless it has none.
    pub(super) fn handle(&mut self, frame: Frame) -> Result<Option<Landing>, Violation> {
        match (self.phase, frame) {
            // What was under way while this side left.
            (Phase::Leaving, Frame::Request { sequence, op, len }) => {
                return Ok(Some(Landing { sequence, op, len, place: None, admitted: false }));
            }
            (Phase::Leaving, _) => {}
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
            _ => return Err(Violation("a frame out of turn")),
        }
        Ok(None)
    }

    /// The bytes of a request are all there.
    pub(super) fn landed(&mut self, landing: &Landing) {
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
            // To be told when the program answers the request.
            Phase::Requested => {}
            Phase::Fresh { .. } => {
                self.phase = Phase::Nobody;
                return;
            }
            Phase::Nobody | Phase::Leaving | Phase::Gone => return,
        }
        self.phase = Phase::Gone;
    }

    fn request(&mut self, sequence: u64, op: SendOp, len: u32) -> Result<Landing, Violation> {
        let dropped = Landing { sequence, op, len, place: None, admitted: false };
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
                Ok(Landing { place, admitted: true, ..dropped })
            }
            Err(Refusal::NotReady) => {
                self.not_ready = Some(Frame::NotReady { sequence, timer: self.side.conditions.rnr_timer() });
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
            Frame::Probe => {
                self.alive = true;
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
            _ => return Err(Violation("a frame out of turn")),
        };
        answered.map_err(|NotAsked| Violation("an answer to nothing"))
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

    /// Something passed over the socket.
    pub(super) fn heard(&mut self) {
        self.side.sends.heard();
        self.probed = false;
    }

    /// When [`expire`](Self::expire) has something to do, or a frame falls due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let retry_timeout = self.side.conditions.retry_timeout();
        let probe = self.side.sends.unanswered_since().filter(|_| !self.probed);
        let probe = probe.map(|since| since + retry_timeout / 2);
        [probe, self.side.sends.deadline(retry_timeout)].into_iter().flatten().min()
    }

    /// Does what has become due.
    pub(super) fn expire(&mut self) {
        let patience = self.side.conditions.retry_timeout() / 2;
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
mod tests {
    use std::time::Duration;

    use valkey_rdma_proto::work::{FailureStatus, Outcome, Region, RegionId, Slice, WrId};

    use super::*;
    use crate::device::{Access, EndpointOptions};
    use crate::emulated::device::{Conditions, Device, Link};

    const TIMEOUT: Duration = Duration::from_secs(1);

    /// A session with a region of 64 bytes.
    fn session(device: &Device, phase: Phase) -> Session {
        let conditions = Conditions::named(Some(device.name())).expect("a device");
        let mut side = Side::new(&EndpointOptions::default(), conditions);
        let region = Region { id: RegionId(0), addr: 1 << 32, rkey: 1, len: 64 };
        side.memories.push(Memory::new(region, Access::RemoteWrite));
        Session::new(side, phase)
    }

    /// Carries all frames both ways until there are none.
    fn exchange(a: &mut Session, b: &mut Session) {
        while carry(a, b) | carry(b, a) {}
    }

    fn carry(from: &mut Session, to: &mut Session) -> bool {
        let Some(next) = from.next_frame() else { return false };
        if let Some(landing) = to.handle(next.frame).expect("a frame in turn") {
            if let (Some((source, from)), Some((target, to))) = (next.bytes, &landing.place) {
                let bytes = source.lock()[from].to_vec();
                target.lock()[to.clone()].copy_from_slice(&bytes);
            }
            to.landed(&landing);
        }
        from.heard();
        to.heard();
        true
    }

    fn connected(device: &Device) -> (Session, Session) {
        let mut active = session(device, Phase::Fresh { port: 1 });
        let mut passive = session(device, Phase::Requested);
        active.establish();
        active.next_frame().expect("the connect request, which the listener reads");
        passive.establish();
        exchange(&mut active, &mut passive);
        assert_eq!((active.phase(), passive.phase()), (Phase::Connected, Phase::Connected));
        (active, passive)
    }

    const BYTES: Slice = Slice { region: RegionId(0), offset: 0, len: 8 };

    fn send(sequence: u64) -> SendRequest {
        SendRequest { wr_id: WrId::send(sequence), local: BYTES, op: SendOp::Send, signalled: true }
    }

    fn receive(slot: u32) -> ReceiveRequest {
        ReceiveRequest { wr_id: WrId::receive(slot), local: BYTES }
    }

    fn outcomes(session: &mut Session) -> Vec<Outcome> {
        let mut found = Vec::new();
        assert!(session.side.poll(&mut found, usize::MAX));
        found.into_iter().map(|completion| completion.outcome).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_answers_probes_is_waited_for_and_a_silent_one_is_not() {
        let device = Device::new(Link::Tcp);
        device.retry_timeout(TIMEOUT);
        let (mut active, mut passive) = connected(&device);
        active.post_sends(&[send(1)]).expect("posts");
        for _ in 0..100 {
            exchange(&mut active, &mut passive);
            let deadline = active.deadline().expect("something to do");
            tokio::time::sleep_until(deadline).await;
            active.expire();
            assert_eq!(outcomes(&mut active), [], "no receive is posted, for ever");
        }
        while outcomes(&mut active).is_empty() {
            let deadline = active.deadline().expect("something to do");
            tokio::time::sleep_until(deadline).await;
            active.expire();
            assert_ne!(active.deadline(), Some(deadline), "time goes on");
        }
        assert_eq!(active.side.state, QueuePairState::Error);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_dropped_for_want_of_a_receive_is_sent_again_in_order() {
        let device = Device::new(Link::Tcp);
        let (mut active, mut passive) = connected(&device);
        active.post_sends(&[send(1), send(2), send(3)]).expect("posts");
        exchange(&mut active, &mut passive);
        assert_eq!(outcomes(&mut passive), []);
        for slot in 0..3 {
            passive.post_receives(&[receive(slot)]).expect("posts");
            exchange(&mut active, &mut passive);
            assert_eq!(outcomes(&mut passive), [Outcome::Received { len: 8 }]);
            assert_eq!(outcomes(&mut active), [Outcome::Sent]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn frames_out_of_turn_are_violations() {
        let device = Device::new(Link::Tcp);
        let connect = Frame::Connect { port: 1, rnr_retry_count: 7 };
        let early = Frame::Request { sequence: 0, op: SendOp::Send, len: 0 };
        let late = Frame::Request { sequence: 1, op: SendOp::Send, len: 0 };
        for frame in [connect, Frame::Ready, Frame::Done { sequence: 0 }, early] {
            assert!(session(&device, Phase::Asked).handle(frame).is_err(), "{frame:?}");
            assert!(session(&device, Phase::Requested).handle(frame).is_err(), "{frame:?}");
        }
        let denied = Frame::Denied { sequence: 0, status: FailureStatus::RemoteAccess };
        let not_ready = Frame::NotReady { sequence: 0, timer: TIMEOUT };
        let accept = Frame::Accept { rnr_retry_count: 7 };
        for frame in [connect, accept, Frame::Ready, Frame::Done { sequence: 0 }, denied, not_ready, late] {
            let (mut active, _passive) = connected(&device);
            assert!(active.handle(frame).is_err(), "{frame:?}");
        }
    }
}
