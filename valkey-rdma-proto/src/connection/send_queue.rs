//! The device's send queue: how many requests it still takes, and which sends a completion acknowledges.
//!
//! Sends complete in order, so one signalled completion acknowledges every send before it. Signalling rarely saves
//! completions; signalling too rarely fills the queue with sends that never complete.
//!
//! [`Outbox`]: the control messages that wait for the queue, and the slots they are sent from.

use alloc::collections::VecDeque;

use super::credits::MessageClass;
use crate::error::ProtocolError;
use crate::wire::{ControlMessage, MESSAGE_LEN};
use crate::work::{RegionId, Slice, WrId};

/// The send queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SendQueue {
    depth: u32,
    /// Sequence number of the next send.
    next: u64,
    /// Every send with a smaller number is acknowledged.
    acknowledged: u64,
    /// Signalled sends in flight: the sequence number, and the position in the send buffer that each acknowledges.
    signalled: VecDeque<(u64, u64)>,
    /// Sends posted after the last signalled one.
    since_signal: u32,
    /// Position in the send buffer that the last signalled send acknowledges.
    covered: u64,
    /// Bytes after which a data send is signalled.
    signal_bytes: u64,
}

impl SendQueue {
    pub(super) fn new(depth: u32, send_buffer_len: u32) -> Self {
        Self {
            depth,
            next: 0,
            acknowledged: 0,
            signalled: VecDeque::new(),
            since_signal: 0,
            covered: 0,
            signal_bytes: signal_bytes(send_buffer_len),
        }
    }

    /// The send buffer has another length from now on.
    pub(super) fn set_send_buffer_len(&mut self, len: u32) {
        self.signal_bytes = signal_bytes(len);
    }

    /// Returns how many more requests the queue takes.
    pub(super) fn room(&self) -> u32 {
        // At most `depth` sends are in flight, so the difference fits.
        self.depth - (self.next - self.acknowledged) as u32
    }

    /// Numbers a send whose data ends at `position` of the send buffer, and decides whether it is signalled: on
    /// request, every quarter of the queue, and every quarter of the send buffer.
    pub(super) fn push(&mut self, position: u64, want_signal: bool) -> (WrId, bool) {
        debug_assert!(self.room() > 0);
        let sequence = self.next;
        self.next += 1;
        self.since_signal += 1;
        let signalled = want_signal
            || self.since_signal >= self.depth / 4
            || position - self.covered >= self.signal_bytes;
        if signalled {
            self.since_signal = 0;
            self.covered = position;
            self.signalled.push_back((sequence, position));
        }
        (WrId::send(sequence), signalled)
    }

    /// A signalled send completed. Returns the position in the send buffer that it acknowledges, or `None` for a number
    /// that is not in flight, which a correct device never reports.
    pub(super) fn complete(&mut self, sequence: u64) -> Option<u64> {
        let mut position = None;
        while let Some(&(front, covered)) = self.signalled.front() {
            if front > sequence {
                break;
            }
            self.signalled.pop_front();
            self.acknowledged = front + 1;
            position = Some(covered);
        }
        position
    }

    /// Returns the sequence number before which every send is acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Returns whether sends are in flight that no completion will acknowledge.
    pub(super) fn has_unsignalled_tail(&self) -> bool {
        self.since_signal > 0
    }

    /// Returns whether every send is acknowledged.
    pub(super) fn is_idle(&self) -> bool {
        self.next == self.acknowledged
    }
}

fn signal_bytes(send_buffer_len: u32) -> u64 {
    u64::from(send_buffer_len / 4).max(1)
}

/// Slots for control messages in flight. A Register, a keepalive, a question and some answers fit at once.
pub(super) const SEND_SLOTS: u32 = 16;

/// Answers that may wait for a peer that asks but does not receive them (clause F-4).
const MAX_WAITING: usize = 1024;

/// Control messages, waiting and in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Outbox {
    region: RegionId,
    /// Offset of the first send slot in the control region.
    base: u32,
    waiting: VecDeque<(ControlMessage, MessageClass)>,
    /// Sequence numbers of the messages that occupy slots, oldest first. Slots are used in rotation.
    in_flight: VecDeque<u64>,
    next_slot: u32,
}

impl Outbox {
    pub(super) fn new(region: RegionId, receives: u32) -> Self {
        Self {
            region,
            base: receives * MESSAGE_LEN as u32,
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            next_slot: 0,
        }
    }

    /// Queues a message.
    pub(super) fn push(&mut self, message: ControlMessage, class: MessageClass) -> Result<(), ProtocolError> {
        if self.waiting.len() == MAX_WAITING {
            return Err(ProtocolError::TooManyRequests { limit: MAX_WAITING });
        }
        self.waiting.push_back((message, class));
        Ok(())
    }

    /// Returns whether no message waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes the next message and returns it with its slot, if one is free.
    pub(super) fn pop(&mut self) -> Option<(ControlMessage, MessageClass, Slice)> {
        if self.in_flight.len() >= SEND_SLOTS as usize {
            return None;
        }
        let (message, class) = self.waiting.pop_front()?;
        let offset = self.base + self.next_slot * MESSAGE_LEN as u32;
        self.next_slot = (self.next_slot + 1) % SEND_SLOTS;
        Some((message, class, Slice { region: self.region, offset, len: MESSAGE_LEN as u32 }))
    }

    /// Records that the message just popped was posted as send number `sequence`.
    pub(super) fn sent(&mut self, sequence: u64) {
        self.in_flight.push_back(sequence);
    }

    /// Frees the slots of all sends before number `sequence`, which are acknowledged.
    pub(super) fn acknowledge(&mut self, sequence: u64) {
        while self.in_flight.front().is_some_and(|&front| front < sequence) {
            self.in_flight.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::WrKind;

    fn sequence(id: WrId) -> u64 {
        match id.kind() {
            WrKind::Send(sequence) => sequence,
            WrKind::Receive(_) => unreachable!("a send"),
        }
    }

    #[test]
    fn one_send_in_a_quarter_of_the_queue_is_signalled() {
        let mut queue = SendQueue::new(16, 1 << 20);
        let signalled: alloc::vec::Vec<bool> = (1..=8).map(|n| queue.push(n, false).1).collect();
        assert_eq!(signalled, [false, false, false, true, false, false, false, true]);
    }

    #[test]
    fn a_quarter_of_the_send_buffer_is_signalled() {
        let mut queue = SendQueue::new(1024, 400);
        assert!(!queue.push(99, false).1);
        assert!(queue.push(100, false).1);
    }

    #[test]
    fn a_completion_vouches_for_every_earlier_send() {
        let mut queue = SendQueue::new(8, 1 << 20);
        let _ = queue.push(10, false);
        let (id, signalled) = queue.push(20, false);
        assert!(signalled);
        let _ = queue.push(30, false);
        assert_eq!(queue.room(), 5);
        assert_eq!(queue.complete(sequence(id)), Some(20));
        assert_eq!(queue.room(), 7);
        assert_eq!(queue.complete(sequence(id)), None, "completes once");
        assert!(queue.has_unsignalled_tail() && !queue.is_idle());
    }

    #[test]
    fn a_completion_of_a_send_never_made_vouches_for_no_more_than_there_is() {
        let mut queue = SendQueue::new(8, 4);
        let _ = queue.push(1, true);
        let _ = queue.push(2, false);
        assert_eq!(queue.complete(1_000_000), Some(2));
        assert_eq!(queue.room(), 8);
        assert_eq!(queue.complete(0), None);
    }
}
