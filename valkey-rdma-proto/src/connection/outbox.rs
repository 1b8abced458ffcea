//! Control messages waiting to be sent, and the slots they are sent from.

use alloc::collections::VecDeque;

use super::credits::MessageClass;
use crate::error::ProtocolError;
use crate::wire::{ControlMessage, MESSAGE_LEN};
use crate::work::{RegionId, Slice};

/// Slots for control messages under way. A Register, a keepalive, a question and some answers fit at once.
pub(super) const SEND_SLOTS: u32 = 16;

/// Answers that may wait for a peer that asks but does not take them (clause F-4).
const MAX_WAITING: usize = 1024;

/// Control messages on their way out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Outbox {
    region: RegionId,
    /// Offset of the first send slot in the command region.
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

    /// Queues a message behind the others.
    pub(super) fn push(&mut self, message: ControlMessage, class: MessageClass) -> Result<(), ProtocolError> {
        if self.waiting.len() == MAX_WAITING {
            return Err(ProtocolError::TooManyRequests { limit: MAX_WAITING });
        }
        self.waiting.push_back((message, class));
        Ok(())
    }

    /// Whether a message waits that has a slot to leave from.
    pub(super) fn is_ready(&self) -> bool {
        !self.waiting.is_empty() && self.in_flight.len() < SEND_SLOTS as usize
    }

    /// Whether no message waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next message and its slot.
    pub(super) fn pop(&mut self) -> Option<(ControlMessage, MessageClass, Slice)> {
        if !self.is_ready() {
            return None;
        }
        let (message, class) = self.waiting.pop_front()?;
        let offset = self.base + self.next_slot * MESSAGE_LEN as u32;
        self.next_slot = (self.next_slot + 1) % SEND_SLOTS;
        Some((message, class, Slice { region: self.region, offset, len: MESSAGE_LEN as u32 }))
    }

    /// The message just popped left as send number `sequence`.
    pub(super) fn sent(&mut self, sequence: u64) {
        self.in_flight.push_back(sequence);
    }

    /// Every send before number `sequence` is acknowledged: their slots are free.
    pub(super) fn acknowledge(&mut self, sequence: u64) {
        while self.in_flight.front().is_some_and(|&front| front < sequence) {
            self.in_flight.pop_front();
        }
    }
}
