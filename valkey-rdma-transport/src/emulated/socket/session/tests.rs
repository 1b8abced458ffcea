//! Two sessions, and a session against frames that no device sends.

use std::time::Duration;

use valkey_rdma_proto::work::{FailureStatus, Outcome, Region, RegionId, Slice, WrId};

use super::*;
use crate::device::{Access, DeviceOptions};
use crate::emulated::device::Link;
use crate::emulated::device::{Device, named};
use crate::emulated::queue_pair::Terms;

const TIMEOUT: Duration = Duration::from_secs(1);

/// A session with a region of 64 bytes.
fn session(device: &Device, phase: Phase) -> Session {
    let plan = named(Some(device.name())).expect("a device");
    let options = DeviceOptions { read_depth: TERMS.read_depth, ..DeviceOptions::default() };
    let mut side = QueuePair::new(&options, plan);
    side.agree(TERMS);
    let region = Region { id: RegionId(0), addr: 1 << 32, rkey: 1, len: 64 };
    side.memories.push(Memory::new(region, Access::RemoteReadWrite));
    Session::new(side, phase)
}

/// Carries all frames both ways until there are none.
fn exchange(a: &mut Session, b: &mut Session) {
    while carry(a, b) | carry(b, a) {}
}

fn carry(from: &mut Session, to: &mut Session) -> bool {
    let Some(next) = from.next_frame() else { return false };
    if let Some(landing) = to.handle(next.frame).expect("an expected frame") {
        if let (Some(bytes), Some((target, to))) = (next.bytes, &landing.place) {
            let bytes = bytes.memory.lock()[bytes.range].to_vec();
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

const TERMS: Terms = Terms { rnr_retry_count: 7, read_depth: 2 };

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
async fn a_queue_pair_in_error_answers_no_probe() {
    let device = Device::new(Link::Tcp);
    let (mut active, mut passive) = connected(&device);
    let probes = |active: &mut Session| {
        assert!(active.handle(Frame::Probe).expect("expected").is_none());
        active.next_frame().map(|next| next.frame)
    };
    assert_eq!(probes(&mut active), Some(Frame::Alive));
    passive.post_sends(&[SendRequest { op: SendOp::Write { addr: 0, rkey: 0 }, ..send(1) }]).expect("posts");
    carry(&mut passive, &mut active);
    assert_eq!(active.side.state, QueuePairState::Error);
    let frame = active.next_frame().map(|next| next.frame);
    assert_eq!(frame, Some(Frame::Denied { sequence: 0, status: FailureStatus::RemoteAccess }));
    assert_eq!(probes(&mut active), None);
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_is_over_wakes_nobody_where_nothing_can_go() {
    let device = Device::new(Link::Tcp);
    device.retry_timeout(TIMEOUT * 100);
    device.delay(TIMEOUT..=TIMEOUT, 1);
    let (mut active, _passive) = connected(&device);
    active.post_sends(&[send(1)]).expect("posts");
    assert!(active.next_frame().is_none());
    assert_eq!(active.deadline(), Some(Instant::now() + TIMEOUT));
    active.cut();
    tokio::time::advance(TIMEOUT).await;
    active.expire();
    // The driver of a cut end asks for no frame.
    assert!(active.deadline().expect("the retry timeout") > Instant::now());
}

#[tokio::test(start_paused = true)]
async fn a_queue_pair_that_fails_by_an_answer_waits_for_no_receiver() {
    let device = Device::new(Link::Tcp);
    let mut active = session(&device, Phase::Asked);
    active.handle(Frame::Accept { terms: Terms { rnr_retry_count: 1, ..TERMS } }).expect("expected");
    active.next_frame().expect("the last of the three");
    let options = DeviceOptions::default();
    for slot in 0..options.send_depth + options.receive_depth {
        active.post_receives(&[receive(slot)]).expect("posts");
        let message = Frame::Request { sequence: slot.into(), op: SendOp::Send, len: 0 };
        let landing = active.handle(message).expect("expected").expect("a request");
        active.landed(&landing);
    }
    active.post_sends(&[send(1), send(2)]).expect("posts");
    while active.next_frame().is_some() {}
    // The first is acknowledged by that, with one completion too many.
    active.handle(Frame::NotReady { sequence: 1, timer: TIMEOUT }).expect("expected");
    assert_eq!(active.side.state, QueuePairState::Error);
    assert_eq!(active.deadline(), None);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_receiver_has_nothing_until_it_goes_on() {
    let device = Device::new(Link::Tcp);
    let (mut active, mut passive) = connected(&device);
    passive.post_receives(&[receive(0)]).expect("posts");
    device.stall_receivers(true);
    active.post_sends(&[send(1)]).expect("posts");
    exchange(&mut active, &mut passive);
    assert_eq!((outcomes(&mut active), outcomes(&mut passive)), (vec![], vec![]));
    device.stall_receivers(false);
    passive.receives_posted();
    exchange(&mut active, &mut passive);
    assert_eq!(outcomes(&mut passive), [Outcome::Received { len: 8 }]);
    assert_eq!(outcomes(&mut active), [Outcome::Sent]);
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_receiver_ends_when_it_is_ready() {
    let device = Device::new(Link::Tcp);
    device.retry_timeout(TIMEOUT * 100);
    device.rnr_retry_count(1);
    device.rnr_timer(TIMEOUT);
    let (mut active, mut passive) = connected(&device);
    active.post_sends(&[send(1)]).expect("posts");
    exchange(&mut active, &mut passive);
    assert_eq!(active.deadline(), Some(Instant::now() + TIMEOUT));
    passive.post_receives(&[receive(0)]).expect("posts");
    carry(&mut passive, &mut active);
    // Its bytes take their time.
    tokio::time::advance(TIMEOUT * 2).await;
    active.expire();
    exchange(&mut active, &mut passive);
    assert_eq!(outcomes(&mut active), [Outcome::Sent]);
}

#[tokio::test(start_paused = true)]
async fn frames_out_of_turn_are_violations() {
    let device = Device::new(Link::Tcp);
    let connect = Frame::Connect { port: 1, terms: TERMS };
    let early = Frame::Request { sequence: 0, op: SendOp::Send, len: 0 };
    let late = Frame::Request { sequence: 1, op: SendOp::Send, len: 0 };
    for frame in [connect, Frame::Ready, Frame::Done { sequence: 0 }, early] {
        assert!(session(&device, Phase::Asked).handle(frame).is_err(), "{frame:?}");
        assert!(session(&device, Phase::Requested).handle(frame).is_err(), "{frame:?}");
    }
    let denied = Frame::Denied { sequence: 0, status: FailureStatus::RemoteAccess };
    let not_ready = Frame::NotReady { sequence: 0, timer: TIMEOUT };
    let accept = Frame::Accept { terms: TERMS };
    let bytes = Frame::Bytes { sequence: 0, len: 8 };
    for frame in [connect, accept, Frame::Ready, Frame::Done { sequence: 0 }, denied, not_ready, late, bytes]
    {
        let (mut active, _passive) = connected(&device);
        assert!(active.handle(frame).is_err(), "{frame:?}");
    }
}

#[test]
fn a_peer_that_reads_more_at_once_than_was_agreed_is_denied() {
    let device = Device::new(Link::Tcp);
    let (_active, mut passive) = connected(&device);
    let op = SendOp::Read { addr: 1 << 32, rkey: 1 };
    for sequence in 0..3 {
        let follows = passive.handle(Frame::Request { sequence, op, len: 8 }).expect("expected");
        assert!(follows.is_none(), "a read brings no bytes");
    }
    let answers = std::iter::from_fn(|| passive.next_frame()).map(|next| next.frame).collect::<Vec<_>>();
    let status = FailureStatus::RemoteInvalidRequest;
    assert_eq!(
        answers,
        [
            Frame::Bytes { sequence: 0, len: 8 },
            Frame::Bytes { sequence: 1, len: 8 },
            Frame::Denied { sequence: 2, status }
        ]
    );
}

#[test]
fn answers_keep_the_order_of_what_they_answer() {
    let device = Device::new(Link::Tcp);
    let (_active, mut passive) = connected(&device);
    let (addr, rkey) = (1 << 32, 1);
    let (read, write) = (SendOp::Read { addr, rkey }, SendOp::Write { addr, rkey });
    for (sequence, op) in [write, read, write, read].into_iter().enumerate() {
        let sequence = sequence as u64;
        let request = Frame::Request { sequence, op, len: 0 };
        if let Some(landing) = passive.handle(request).expect("expected") {
            passive.landed(&landing);
        }
    }
    let answers = std::iter::from_fn(|| passive.next_frame()).map(|next| next.frame).collect::<Vec<_>>();
    let bytes = |sequence| Frame::Bytes { sequence, len: 0 };
    assert_eq!(answers, [bytes(1), Frame::Done { sequence: 2 }, bytes(3)]);
}

#[test]
fn bytes_other_than_those_asked_for_are_violations() {
    let device = Device::new(Link::Tcp);
    for answer in [
        Frame::Bytes { sequence: 0, len: 7 },
        Frame::Bytes { sequence: 1, len: 8 },
        Frame::Done { sequence: 0 },
    ] {
        let (mut active, _passive) = connected(&device);
        let request = SendRequest { op: SendOp::Read { addr: 1 << 32, rkey: 1 }, ..send(0) };
        active.post_sends(&[request]).expect("posts");
        active.next_frame().expect("the read");
        assert!(active.handle(answer).is_err(), "{answer:?}");
    }
}

/// Numbers that repeat, most of them small.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// A frame, as likely as not one expected of a peer whose next request is number `expected`.
    fn frame(&mut self, expected: u64) -> Frame {
        let (sequence, answered) = (expected + self.below(8) / 7, self.below(4));
        let len = [0, 8, 64, 65, crate::emulated::MAX_MESSAGE][self.below(5) as usize];
        let (addr, rkey) = ((1 << 32) + self.below(3) * 32, 1 + (self.below(8) / 7) as u32);
        match self.below(64) {
            0 => Frame::Connect { port: 1, terms: TERMS },
            1 => Frame::Accept { terms: TERMS },
            2 => Frame::Reject { reason: 28 },
            3 => Frame::Ready,
            4 => Frame::Disconnect,
            5 => Frame::Done { sequence: answered },
            6 => Frame::NotReady { sequence: answered, timer: TIMEOUT },
            7 => Frame::Denied { sequence: answered, status: FailureStatus::RemoteAccess },
            8 => Frame::Resume,
            9 => Frame::Probe,
            10..=27 => Frame::Request { sequence, op: SendOp::Send, len },
            28..=31 => Frame::Request { sequence, op: SendOp::Read { addr, rkey }, len },
            32..=34 => Frame::Bytes { sequence: answered, len },
            35..=45 => Frame::Request { sequence, op: SendOp::Write { addr, rkey }, len },
            _ => Frame::Request { sequence, op: SendOp::WriteWithImm { addr, rkey, imm: 7 }, len },
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_peer_brings_a_session_down_or_gets_bytes_out_of_bounds() {
    let device = Device::new(Link::Tcp);
    let mut numbers = Numbers(1);
    let (mut admitted, mut violations) = (0, 0);
    for _ in 0..5000 {
        let (mut victim, _) = connected(&device);
        victim.post_receives(&[receive(0), receive(1)]).expect("posts");
        victim.post_sends(&[send(1), send(2), send(3)]).expect("posts");
        for _ in 0..numbers.below(20) {
            while numbers.below(2) > 0 && victim.next_frame().is_some() {}
            match victim.handle(numbers.frame(victim.expected)) {
                Ok(Some(landing)) => {
                    if let Some((memory, range)) = &landing.place {
                        assert_eq!(range.len(), landing.len as usize);
                        assert!(memory.lock().get(range.clone()).is_some(), "{landing:?}");
                        admitted += 1;
                    }
                    victim.landed(&landing);
                }
                Ok(None) => {}
                Err(_) => {
                    violations += 1;
                    victim.peer_gone();
                    break;
                }
            }
            victim.expire();
        }
        victim.disconnect();
        while victim.next_frame().is_some() {}
        // Everything posted has completed, once.
        assert_eq!(outcomes(&mut victim).len(), 5);
    }
    assert!(admitted > 1000 && violations > 1000, "{admitted} admitted, {violations} violations");
}
