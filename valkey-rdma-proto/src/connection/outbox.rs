//! Control messages that wait to be sent, and the slots they are sent from.

use alloc::collections::VecDeque;

use super::credits::MessageClass;
use crate::error::ProtocolError;
use crate::wire::{ControlMessage, MESSAGE_LEN};
use crate::work::{RegionId, Slice};

/// Slots for control messages in flight. A Register, a keepalive, a question and some answers fit at once.
pub(super) const SEND_SLOTS: u32 = 16;

/// Answers that may wait for a peer that asks but does not receive them (clause F-4).
const MAX_WAITING: usize = 1024;

/// Control messages, waiting and in flight.
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

    /// Queues a message.
    pub(super) fn push(&mut self, message: ControlMessage, class: MessageClass) -> Result<(), ProtocolError> {
        if self.waiting.len() == MAX_WAITING {
            return Err(ProtocolError::TooManyRequests { limit: MAX_WAITING });
        }
        self.waiting.push_back((message, class));
        Ok(())
    }

    /// Returns whether a message waits and a slot is free.
    pub(super) fn is_ready(&self) -> bool {
        !self.waiting.is_empty() && self.in_flight.len() < SEND_SLOTS as usize
    }

    /// Returns whether no message waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes the next message and returns it with its slot.
    pub(super) fn pop(&mut self) -> Option<(ControlMessage, MessageClass, Slice)> {
        if !self.is_ready() {
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
