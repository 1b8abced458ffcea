//! Work for the device: control messages first, then data as far as window, credits and queue allow.

use super::credits::MessageClass;
use super::{Connection, Work};
use crate::error::CloseReason;
use crate::time::{Instant, Timer};
use crate::wire::{ControlMessage, Features, MESSAGE_LEN, XferMemory};
use crate::work::{ReceiveRequest, SendOp, SendRequest, Slice, WrId, WrKind};

/// Send queue entries reserved for control messages, so that a Register or an answer can always be sent.
pub(super) const CONTROL_RESERVE: u32 = 4;

impl Connection {
    /// Offers the next receive buffer if the peer has filled the current one.
    pub(super) fn offer_next_buffer(&mut self) {
        if self.is_closed() {
            return;
        }
        if let Some(memory) = self.rx.next_to_offer() {
            self.send_register(memory);
        }
    }

    pub(super) fn send_register(&mut self, memory: XferMemory) {
        self.counters.registers_sent += 1;
        self.send_control(ControlMessage::RegisterXferMemory(memory), MessageClass::Register);
    }

    /// Asks the server for its features, because the answer is proof (clause C-3).
    pub(super) fn send_probe(&mut self) {
        self.counters.probes += 1;
        self.send_control(
            ControlMessage::GetServerFeature(Features { select: 0, bits: 0 }),
            MessageClass::Probe,
        );
    }

    /// This side queues few messages. A full outbox means that the peer takes none of them.
    pub(super) fn send_control(&mut self, message: ControlMessage, class: MessageClass) {
        if let Err(error) = self.outbox.push(message, class) {
            self.end(CloseReason::Protocol(error));
        }
    }

    pub(super) fn keep_alive(&mut self) {
        let Some(period) = self.keepalive_period() else { return };
        self.timers.set(Timer::Keepalive, self.now, period);
        match &mut self.keepalive {
            // At most one is in flight, so that they cannot use up the receives of a peer that takes none (clause K-2).
            Some((_, missed)) => {
                *missed += 1;
                let missed = *missed;
                if missed >= self.config.keepalive_misses {
                    self.end(CloseReason::KeepaliveTimeout { missed });
                }
            }
            // A client short of credits needs the last ones for a question.
            None if !self.credits.allow_data() => {}
            None => {
                self.keepalive = Some((u64::MAX, 0));
                self.send_control(ControlMessage::Keepalive, MessageClass::Other);
            }
        }
    }

    pub(super) fn poll_receive(&mut self) -> Option<Work> {
        let slot = self.receives.pop_front()?;
        self.counters.receives_posted += 1;
        let offset = slot * MESSAGE_LEN as u32;
        let local = Slice { region: self.control, offset, len: MESSAGE_LEN as u32 };
        Some(Work::Receive(ReceiveRequest { wr_id: WrId::receive(slot), local }))
    }

    pub(super) fn poll_message(&mut self) -> Option<Work> {
        if self.credits.wants_probe() && self.queue.room() > CONTROL_RESERVE && self.outbox.is_empty() {
            self.send_probe();
        }
        if self.queue.room() == 0 {
            return None;
        }
        let (message, class, local) = self.outbox.pop()?;
        let request = self.send(SendOp::Send, local, true);
        if let WrKind::Send(sequence) = request.wr_id.kind() {
            self.outbox.sent(sequence);
            if let (ControlMessage::Keepalive, Some((number, _))) = (message, &mut self.keepalive) {
                *number = sequence;
            }
        }
        self.spend(class);
        self.counters.messages_sent += 1;
        Some(Work::Message(request, message.encode()))
    }

    pub(super) fn poll_data(&mut self, clock: &dyn Fn() -> Instant) -> Option<Work> {
        let mut local = self.send_buffer.unposted();
        let mut waiting = self.send_buffer.waiting();
        if let Some(limit) = self.transfers.data_limit() {
            // What was committed later follows the transfer (clause D-3).
            waiting = self.send_buffer.waiting_before(limit);
            local.len = local.len.min(waiting);
        }
        if local.len == 0 || !self.tx.is_registered() {
            return None;
        }
        if self.tx.room() == 0 {
            if self.stalled_since.is_none() {
                let now = clock();
                self.stalled_since = Some(now);
                self.counters.window_stalls += 1;
                if let Some(limit) = self.config.stall_timeout {
                    self.timers.set(Timer::Stall, now, limit);
                }
            }
            return None;
        }
        if self.queue.room() <= CONTROL_RESERVE || !self.credits.allow_data() {
            return None;
        }
        let room = self.tx.room().min(self.max_piece - self.unannounced);
        // The data continues in another place, at the front of the ring or in a lent slice: one message for both parts.
        let continues = local.len < room && local.len < waiting;
        local.len = local.len.min(room);
        let (addr, rkey) = self.tx.take(local.len);
        self.lending_ends |= self.send_buffer.post(local.len);
        self.counters.bytes_sent += u64::from(local.len);
        self.unannounced += local.len;
        if continues {
            return Some(Work::Data(self.send(SendOp::Write { addr, rkey }, local, false)));
        }
        self.spend(MessageClass::Data);
        let op = SendOp::WriteWithImm { addr, rkey, imm: core::mem::take(&mut self.unannounced) };
        // The application waits for the acknowledgement of its lent memory.
        let want_signal = core::mem::take(&mut self.lending_ends);
        Some(Work::Data(self.send(op, local, want_signal)))
    }

    pub(super) fn poll_requested_fence(&mut self) -> Option<Work> {
        // Before the peer's Register there is no place to write to. Transfers may have been sent.
        if !self.fence_wanted || self.queue.room() <= CONTROL_RESERVE || !self.tx.is_registered() {
            return None;
        }
        self.fence_wanted = false;
        self.poll_fence()
    }

    /// A write of 0 bytes, which the peer does not see. Its completion follows those of all earlier sends.
    pub(super) fn poll_fence(&mut self) -> Option<Work> {
        if self.queue.room() == 0 {
            return None;
        }
        let local = Slice { len: 0, ..self.send_buffer.unposted() };
        let (addr, rkey) = self.tx.take(0);
        Some(Work::Data(self.send(SendOp::Write { addr, rkey }, local, true)))
    }

    pub(super) fn send(&mut self, op: SendOp, local: Slice, want_signal: bool) -> SendRequest {
        // Bytes that are not announced do not count as delivered (clause X-5).
        let announced = self.send_buffer.posted() - u64::from(self.unannounced);
        let (wr_id, signalled) = self.queue.push(announced, want_signal);
        self.counters.work_requests += 1;
        self.counters.signalled += u64::from(signalled);
        SendRequest { wr_id, local, op, signalled }
    }

    fn spend(&mut self, class: MessageClass) {
        self.credits.spend(class);
        if let Some(low_water) = &mut self.counters.credits_low_water {
            *low_water = (*low_water).min(self.credits.left());
        }
    }
}
