//! Direct transfers (area D): values that a server moves between its own memory and memory that its client has exposed.
//!
//! They leave on the connection's own queue pair, so whatever is committed after a transfer arrives after its bytes. Bytes
//! committed before it may arrive later: they can be waiting for the client's window, and no transfer needs a window.

use alloc::collections::VecDeque;

use super::sending::CONTROL_RESERVE;
use super::{Connection, Work};
use crate::config::Role;
use crate::features::FeatureSet;
use crate::work::{SendOp, Slice, WrKind};

/// One transfer between a local slice and as many bytes of the client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// The direction.
    pub direction: Direction,
    /// This side's bytes. Of a read, where they go.
    pub local: Slice,
    /// Address of the first byte in the client's memory, as the client named it.
    pub addr: u64,
    /// The client's key for it.
    pub rkey: u32,
}

/// The direction of a [`Transfer`], as the server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Into the client's memory.
    Write,
    /// Out of the client's memory.
    Read,
}

/// The transfers that are not complete. They are numbered from 1, and complete in this order, as all sends do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Transfers {
    /// Not completely handed to the device, each with the position in the data that it comes before.
    waiting: VecDeque<(u64, Transfer)>,
    /// The last send of each that was, and how many bytes that has.
    posted: VecDeque<(u64, u32)>,
    completed: u64,
}

impl Transfers {
    /// Returns whether everything was handed to the device.
    pub(super) fn is_posted(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the position up to which data may be sent now. What was committed later comes after the transfers.
    pub(super) fn data_limit(&self) -> Option<u64> {
        self.waiting.front().map(|(position, _)| *position)
    }

    /// Returns whether there is none that is not complete.
    pub(super) fn is_complete(&self) -> bool {
        self.waiting.is_empty() && self.posted.is_empty()
    }

    /// Returns how many bytes are still to be handed to the device, or in the last sends of transfers that were.
    pub(super) fn unfinished(&self) -> u64 {
        let waiting = self.waiting.iter().map(|(_, transfer)| transfer.local.len);
        waiting.chain(self.posted.iter().map(|(_, len)| *len)).map(u64::from).sum()
    }

    /// Completes those whose sends all have numbers below `acknowledged`.
    pub(super) fn acknowledge(&mut self, acknowledged: u64) {
        while self.posted.front().is_some_and(|(last, _)| *last < acknowledged) {
            self.posted.pop_front();
            self.completed += 1;
        }
    }
}

impl Connection {
    /// Returns whether this side may start transfers: it is the server, and the client has chosen
    /// [`FeatureSet::DIRECT`] (clause D-1).
    pub fn may_transfer(&self) -> bool {
        self.role == Role::Server && self.is_direct()
    }

    /// Returns whether the peer may start transfers, so that it is of use to expose memory to it.
    pub fn may_expose(&self) -> bool {
        self.role == Role::Client && self.is_direct()
    }

    fn is_direct(&self) -> bool {
        self.agreed.is_some_and(|features| features.contains(FeatureSet::DIRECT))
    }

    /// Queues a transfer. Data that is committed from now on leaves after it. Returns its number, for
    /// [`transferred`](Self::transferred), or `None` if the connection is closing.
    ///
    /// The local bytes of a write must not change, and those of a read must not be used, until the transfer is complete or
    /// the device has ended the connection.
    ///
    /// # Panics
    /// If this side [may not](Self::may_transfer) start transfers.
    pub fn transfer(&mut self, transfer: Transfer) -> Option<u64> {
        assert!(
            self.may_transfer(),
            "only a server starts transfers, and only if its client has chosen them"
        );
        if self.is_closing() {
            return None;
        }
        let Transfers { waiting, posted, completed } = &mut self.transfers;
        waiting.push_back((self.send_buffer.committed(), transfer));
        Some(*completed + (posted.len() + waiting.len()) as u64)
    }

    /// Returns how many transfers are complete: the client's device has acknowledged all bytes of a write, and all bytes of a
    /// read have arrived. Those that are not when the connection ends never are.
    pub fn transferred(&self) -> u64 {
        self.transfers.completed
    }

    /// The next piece of the oldest transfer. The last piece is signalled.
    pub(super) fn poll_transfer(&mut self) -> Option<Work> {
        let (_, transfer) = self.transfers.waiting.front_mut()?;
        if self.queue.room() <= CONTROL_RESERVE {
            return None;
        }
        let Transfer { direction, local, addr, rkey } = *transfer;
        let len = local.len.min(self.max_piece);
        let is_last = len == local.len;
        transfer.local = Slice { offset: local.offset.wrapping_add(len), len: local.len - len, ..local };
        // A client can name any address. Its device refuses those beyond the end of its memory.
        transfer.addr = addr.wrapping_add(u64::from(len));
        let op = match direction {
            Direction::Write => SendOp::Write { addr, rkey },
            Direction::Read => SendOp::Read { addr, rkey },
        };
        let request = self.send(op, Slice { len, ..local }, is_last);
        self.counters.bytes_transferred += u64::from(len);
        if is_last {
            self.transfers.waiting.pop_front();
            if let WrKind::Send(sequence) = request.wr_id.kind() {
                self.transfers.posted.push_back((sequence, len));
            }
        }
        Some(Work::Data(request))
    }
}
