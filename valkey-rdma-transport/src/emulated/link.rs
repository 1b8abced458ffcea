//! What joins two endpoints: carries out the sends of each against the memory and the receives of the other.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use valkey_rdma_proto::work::{FailureStatus, Outcome, ReceiveRequest, SendOp, SendRequest};

use super::memory::Memory;
use super::side::{QueuePairState, Side};
use crate::device::{Access, CmEvent, EndpointOptions};
use crate::error::TransportError;

/// Which end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Active,
    Passive,
}

impl End {
    pub(super) fn other(self) -> End {
        match self {
            End::Active => End::Passive,
            End::Passive => End::Active,
        }
    }
}

/// Two sides under one lock, so that a send and its effect at the peer are one step.
#[derive(Clone, Debug)]
pub(super) struct Link(Arc<Mutex<Sides>>);

#[derive(Debug)]
pub(super) struct Sides([Side; 2]);

/// How carrying out a send went.
enum Carried {
    Done,
    /// The peer has no receive posted, or is gone: try again later.
    NotYet,
    Failed {
        status: FailureStatus,
        /// Whether the peer's queue pair goes to error too.
        peer_fails: bool,
    },
}

impl Link {
    pub(super) fn new(options: &EndpointOptions) -> Self {
        Self(Arc::new(Mutex::new(Sides([Side::new(options), Side::new(options)]))))
    }

    /// Runs `step` under the lock, then wakes whoever it has something for.
    pub(super) fn with<R>(&self, step: impl FnOnce(&mut Sides) -> R) -> R {
        let (result, wakers) = {
            let mut sides = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let result = step(&mut sides);
            (result, sides.take_wakers())
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
        result
    }
}

impl Sides {
    /// One side.
    pub(super) fn side(&mut self, end: End) -> &mut Side {
        &mut self.0[end as usize]
    }

    /// Posts a chain of sends from `end`.
    pub(super) fn post_sends(&mut self, end: End, chain: &[SendRequest]) -> Result<(), TransportError> {
        for request in chain {
            if self.side(end).state == QueuePairState::Init {
                return Err(refused("ibv_post_send", io::ErrorKind::InvalidInput));
            }
            if !self.side(end).take_send_entry() {
                return Err(refused("ibv_post_send", io::ErrorKind::OutOfMemory));
            }
            if self.side(end).state == QueuePairState::Error {
                self.side(end).fail_send(request.wr_id, FailureStatus::Flushed);
            } else {
                self.side(end).stalled.push_back(*request);
                self.progress(end);
            }
        }
        Ok(())
    }

    /// Posts receives at `end`, and lets the peer's waiting sends find them.
    pub(super) fn post_receives(&mut self, end: End, batch: &[ReceiveRequest]) -> Result<(), TransportError> {
        for &request in batch {
            let side = self.side(end);
            if !side.has_receive_entry() {
                return Err(refused("ibv_post_recv", io::ErrorKind::OutOfMemory));
            }
            if side.state == QueuePairState::Error {
                side.complete_receive(request.wr_id, Outcome::Failed(FailureStatus::Flushed));
            } else {
                side.receives.push_back(request);
            }
        }
        self.progress(end.other());
        Ok(())
    }

    /// The passive end accepted: both queue pairs are connected, unless the active end is gone by now.
    pub(super) fn connect(&mut self) {
        if self.side(End::Active).state == QueuePairState::Error {
            return self.side(End::Passive).push_cm_event(CmEvent::Disconnected);
        }
        for side in &mut self.0 {
            side.state = QueuePairState::Ready;
            side.push_cm_event(CmEvent::Established);
        }
    }

    /// `end` goes to error; its peer is told if they were connected.
    pub(super) fn disconnect(&mut self, end: End) {
        let was_connected = self.side(end).state != QueuePairState::Init;
        self.side(end).fail();
        let peer = self.side(end.other());
        // Each side is told once, and not at all if it went first.
        if was_connected && !peer.cm_events.contains(&CmEvent::Disconnected) {
            peer.push_cm_event(CmEvent::Disconnected);
        }
    }

    /// Carries out the waiting sends of `end`, in order, as far as the peer's receives allow.
    fn progress(&mut self, end: End) {
        while let Some(&request) = self.side(end).stalled.front() {
            match self.carry_out(end, &request) {
                Carried::NotYet => return,
                Carried::Done => {
                    self.side(end).stalled.pop_front();
                    self.side(end).complete_send(&request);
                }
                Carried::Failed { status, peer_fails } => {
                    self.side(end).stalled.pop_front();
                    self.side(end).fail_send(request.wr_id, status);
                    self.side(end).fail();
                    if peer_fails {
                        self.side(end.other()).fail();
                    }
                }
            }
        }
    }

    fn carry_out(&mut self, end: End, request: &SendRequest) -> Carried {
        let local = request.local;
        let source = self.side(end).memory(local.region).cloned();
        let Some((source, from)) = source
            .and_then(|memory| memory.range(local.offset.into(), local.len).map(|range| (memory, range)))
        else {
            return Carried::Failed { status: FailureStatus::LocalProtection, peer_fails: false };
        };
        let peer = self.side(end.other());
        // A peer in error acknowledges nothing. Hardware tries again for seconds, and by then the news that the peer
        // has disconnected is here: so it is left to that.
        let silent = peer.state != QueuePairState::Ready;
        if silent || request.op.consumes_receive() && peer.receives.is_empty() {
            return Carried::NotYet;
        }
        match request.op {
            SendOp::Send => {
                let Some(receive) = peer.receives.pop_front() else { return Carried::NotYet };
                let slot = receive.local;
                let target = peer.memory(slot.region).cloned();
                let target = target.filter(|_| local.len <= slot.len).and_then(|memory| {
                    memory.range(slot.offset.into(), local.len).map(|range| (memory, range))
                });
                let Some((target, to)) = target else {
                    let outcome = Outcome::Failed(FailureStatus::LocalLength);
                    peer.complete_receive(receive.wr_id, outcome);
                    return Carried::Failed { status: FailureStatus::RemoteOperation, peer_fails: true };
                };
                copy(&source, from, &target, to);
                peer.complete_receive(receive.wr_id, Outcome::Received { len: local.len });
            }
            SendOp::Write { addr, rkey } | SendOp::WriteWithImm { addr, rkey, .. } => {
                // A write of nothing names no memory, whatever its key (InfiniBand specification, C9-88).
                if local.len > 0 {
                    let target = peer
                        .memories
                        .iter()
                        .find(|memory| memory.region.rkey == rkey && memory.access == Access::RemoteWrite);
                    let target =
                        target.and_then(|memory| memory.locate(addr, local.len).map(|to| (memory, to)));
                    let Some((target, to)) = target else {
                        return Carried::Failed { status: FailureStatus::RemoteAccess, peer_fails: true };
                    };
                    copy(&source, from, target, to);
                }
                if let SendOp::WriteWithImm { imm, .. } = request.op {
                    let Some(receive) = peer.receives.pop_front() else { return Carried::NotYet };
                    peer.complete_receive(receive.wr_id, Outcome::Written { byte_len: local.len, imm });
                }
            }
        }
        Carried::Done
    }

    fn take_wakers(&mut self) -> [Option<Waker>; 4] {
        let [active, passive] = &mut self.0;
        [
            active.completion_event.take_waker(),
            active.cm_signal.take_waker(),
            passive.completion_event.take_waker(),
            passive.cm_signal.take_waker(),
        ]
    }
}

/// Copies from one side's region to the other's. The two differ: a region belongs to one side.
fn copy(source: &Memory, from: std::ops::Range<usize>, target: &Memory, to: std::ops::Range<usize>) {
    let source = source.lock();
    target.lock()[to].copy_from_slice(&source[from]);
}

fn refused(call: &'static str, kind: io::ErrorKind) -> TransportError {
    TransportError::Device { call, source: kind.into() }
}
