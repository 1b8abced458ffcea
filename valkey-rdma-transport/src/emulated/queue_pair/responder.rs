//! The receiving half of a queue pair: checks each request of the peer, says where its bytes go, and completes it.
//! Every link passes every request to [`QueuePair::admit`], so that all are equally strict.

use std::io;
use std::ops::Range;

use valkey_rdma_proto::work::{FailureStatus, Outcome, ReceiveRequest, SendOp};

use super::{Memory, QueuePair, QueuePairState};
use crate::device::Access;
use crate::emulated::refused;
use crate::error::TransportError;

/// Where the bytes of an admitted request go, or come from if it is a read; `None` if it has none.
pub(in crate::emulated) type Span = Option<(Memory, Range<usize>)>;

/// A request that is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::emulated) enum Refusal {
    /// No receive is posted: try again later.
    NotReady,
    /// It may not be carried out. The queue pair is in error by that.
    Denied(FailureStatus),
}

impl QueuePair {
    /// Posts a receive.
    pub(in crate::emulated) fn post_receive(
        &mut self,
        request: ReceiveRequest,
    ) -> Result<(), TransportError> {
        if !self.has_receive_entry() {
            return Err(refused("ibv_post_recv", io::ErrorKind::OutOfMemory));
        }
        if self.state == QueuePairState::Error {
            self.complete_receive(request.wr_id, Outcome::Failed(FailureStatus::Flushed));
        } else {
            self.receives.push_back(request);
        }
        Ok(())
    }

    /// Whether a message would find a receive.
    pub(in crate::emulated) fn has_receive(&self) -> bool {
        !self.receives.is_empty() && !self.plan.stalls_receiver()
    }

    /// Decides on a request of the peer for `len` bytes. The caller puts the bytes into place, or sends those of a read, and
    /// then calls [`settle`](Self::settle).
    pub(in crate::emulated) fn admit(&mut self, op: SendOp, len: u32) -> Result<Span, Refusal> {
        if op.consumes_receive() && !self.has_receive() {
            return Err(Refusal::NotReady);
        }
        let place = match op {
            SendOp::Send | SendOp::SendWithImm { .. } => self.slot_for(len),
            // What has no bytes names no memory, whatever its key (InfiniBand specification, C9-88).
            _ if len == 0 => return Ok(None),
            SendOp::Write { addr, rkey } | SendOp::WriteWithImm { addr, rkey, .. } => {
                self.open_memory(Access::allows_write, addr, rkey, len)
            }
            SendOp::Read { addr, rkey } => self.open_memory(Access::allows_read, addr, rkey, len),
        };
        if place.is_none() {
            let status = match op {
                SendOp::Send | SendOp::SendWithImm { .. } => {
                    if let Some(receive) = self.receives.pop_front() {
                        let outcome = Outcome::Failed(FailureStatus::LocalLength);
                        self.complete_receive(receive.wr_id, outcome);
                    }
                    FailureStatus::RemoteOperation
                }
                SendOp::Write { .. } | SendOp::WriteWithImm { .. } | SendOp::Read { .. } => {
                    FailureStatus::RemoteAccess
                }
            };
            self.fail();
            return Err(Refusal::Denied(status));
        }
        Ok(place)
    }

    /// The bytes of the request just admitted have moved. `false`: the queue pair has failed in between.
    pub(in crate::emulated) fn settle(&mut self, op: SendOp, len: u32) -> bool {
        if self.state != QueuePairState::Ready {
            return false;
        }
        let outcome = match op {
            SendOp::Write { .. } | SendOp::Read { .. } => return true,
            SendOp::Send => Outcome::Received { len },
            SendOp::SendWithImm { imm } => Outcome::ReceivedWithImm { len, imm },
            SendOp::WriteWithImm { imm, .. } => Outcome::Written { byte_len: len, imm },
        };
        // There since the request was admitted, unless the queue pair has failed.
        if let Some(receive) = self.receives.pop_front() {
            self.complete_receive(receive.wr_id, outcome);
        }
        true
    }

    fn slot_for(&self, len: u32) -> Span {
        let slot = self.receives.front()?.local;
        let memory = self.memory(slot.region).filter(|memory| len <= slot.len && memory.is_own())?;
        memory.range(slot.offset.into(), len).map(|range| (memory.clone(), range))
    }

    fn open_memory(&self, allowed: fn(Access) -> bool, addr: u64, rkey: u32, len: u32) -> Span {
        let open = |memory: &&Memory| memory.region.rkey == rkey && allowed(memory.access);
        let memory = self.memories.iter().find(open)?;
        let range = memory.locate(addr, len).filter(|range| memory.is_open(range.clone()))?;
        Some((memory.clone(), range))
    }
}
