//! Handles messages and data from the peer, and completions from the device.

use super::{Connection, State};
use crate::config::Role;
use crate::error::{CloseReason, ProtocolError};
use crate::time::Timer;
use crate::wire::{ControlMessage, Features, MESSAGE_LEN, XferMemory};
use crate::work::{FailureStatus, Outcome, WrKind};

impl Connection {
    pub(super) fn handle_message(&mut self, len: u32, bytes: &[u8]) -> Result<(), ProtocolError> {
        self.counters.messages_received += 1;
        // `bytes` is cut to the slot; `len` is the length that the device reported (clause M-1).
        if len != MESSAGE_LEN as u32 {
            return Err(ProtocolError::MessageLength { len });
        }
        let message = ControlMessage::decode(bytes)?;
        match (message, self.role) {
            (ControlMessage::RegisterXferMemory(memory), _) => self.handle_register(memory),
            (ControlMessage::Keepalive, _) => Ok(()),
            (ControlMessage::GetServerFeature(Features { select, .. }), Role::Server) => {
                self.answer_features(select)
            }
            (ControlMessage::SetClientFeature(choice), Role::Server) => self.handle_choice(choice),
            (ControlMessage::GetServerFeature(answer), Role::Client) if self.credits.handle_answer() => {
                self.handle_features(answer)
            }
            (ControlMessage::GetServerFeature(_) | ControlMessage::SetClientFeature(_), Role::Client) => {
                Err(ProtocolError::Opcode { opcode: message.opcode() })
            }
        }
    }

    fn handle_register(&mut self, memory: XferMemory) -> Result<(), ProtocolError> {
        let was_full = self.tx.is_registered() && self.tx.room() == 0;
        let first = self.tx.handle_register(memory, self.config.max_peer_window)?;
        self.counters.registers_received += 1;
        if was_full {
            self.credits.handle_window_renewed();
        }
        if let Some(since) = self.stalled_since.take() {
            self.counters.window_stall_time += self.now - since;
            self.timers.stop(Timer::Stall);
        }
        if first {
            self.complete_handshake();
        }
        Ok(())
    }

    /// The completion of something that had arrived before the end. Two things still matter: data, for the application to
    /// read, and the choice of features before it, which says what the data is (clause F-7).
    pub(super) fn handle_late_arrival(
        &mut self,
        outcome: Outcome,
        bytes: &[u8],
    ) -> Result<(), ProtocolError> {
        match (outcome, self.role) {
            (Outcome::Written { byte_len, imm }, _) => self.handle_written(byte_len, imm),
            (Outcome::Received { .. }, Role::Server) => match ControlMessage::decode(bytes) {
                Ok(ControlMessage::SetClientFeature(choice)) => self.handle_choice(choice),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Inlined, because almost every completion ends here.
    #[inline]
    pub(super) fn handle_written(&mut self, byte_len: u32, imm: u32) -> Result<(), ProtocolError> {
        if self.rx.handle_immediate(byte_len, imm)? {
            self.credits.handle_first_bytes();
            self.handle_bytes_before_choice();
        }
        self.counters.immediates_received += 1;
        self.counters.bytes_received += u64::from(imm);
        self.offer_next_buffer();
        Ok(())
    }

    pub(super) fn handle_sent(&mut self, sequence: u64) {
        let Some(position) = self.queue.complete(sequence) else { return };
        // A client that waits for a long transfer sends nothing.
        if !self.transfers.is_complete() {
            self.reset_idle_timer();
        }
        self.send_buffer.acknowledge(position);
        self.outbox.acknowledge(self.queue.acknowledged());
        self.transfers.acknowledge(self.queue.acknowledged());
        if self.keepalive.is_some_and(|(number, _)| number < self.queue.acknowledged()) {
            self.keepalive = None;
        }
    }

    pub(super) fn handle_failure(
        &mut self,
        kind: WrKind,
        status: FailureStatus,
    ) -> Result<(), ProtocolError> {
        let reason = match (self.state, kind, status) {
            // The peer's disconnect can arrive before its event. Everything was acknowledged already.
            (State::Lingering, ..) => CloseReason::Local,
            (_, WrKind::Receive(_), FailureStatus::LocalLength | FailureStatus::LocalQueuePair) => {
                return Err(ProtocolError::MessageTooLong);
            }
            _ => CloseReason::Failed(status),
        };
        self.end(reason);
        Ok(())
    }
}
