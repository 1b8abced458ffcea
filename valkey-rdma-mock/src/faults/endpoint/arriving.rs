//! What goes wrong with what arrives.

use std::time::Duration;

use tokio::time::Instant;
use valkey_rdma_transport::device::DeviceLayer;
use valkey_rdma_transport::device::wire::MESSAGE_LEN;
use valkey_rdma_transport::device::work::{Completion, Outcome, Slice, WrKind};

use super::super::fault::{Fault, Occasion};
use super::super::wire;
use super::{ADDED, FaultyEndpoint};

impl FaultyEndpoint {
    /// What the owner gets to see of a completion.
    pub(super) fn pass_on(&mut self, mut completion: Completion) -> Option<Completion> {
        match (completion.wr_id.kind(), completion.outcome) {
            (WrKind::Send(number), outcome) if number & ADDED != 0 => {
                self.added -= 1;
                if self.close_after == Some(completion.wr_id) && outcome == Outcome::Sent {
                    self.script.happened(Fault::CloseAfter);
                    self.below_mut().disconnect();
                }
                return None;
            }
            (WrKind::Receive(slot), Outcome::Received { len } | Outcome::ReceivedWithImm { len, .. }) => {
                completion.outcome = self.message_came(slot, len);
            }
            (WrKind::Receive(_), Outcome::Written { byte_len, imm }) if imm > 0 => {
                for (fault, value) in self.script.strike(Occasion::Arrival) {
                    let before = completion.outcome;
                    match fault {
                        Fault::Stall => {
                            self.stalled_until = Some(Instant::now() + Duration::from_millis(value.into()));
                        }
                        Fault::LenientImm => {
                            completion.outcome = Outcome::Written { byte_len, imm: byte_len }
                        }
                        _ => {}
                    }
                    if fault == Fault::Stall || completion.outcome != before {
                        self.script.happened(fault);
                    }
                }
            }
            _ => {}
        }
        Some(completion)
    }

    fn message_came(&mut self, slot: u32, mut len: u32) -> Outcome {
        let Some(&place) = self.receives.get(&slot) else { return Outcome::Received { len } };
        let message = self.read(Slice { len: len.min(place.len), ..place });
        let struck = self.script.strike(Occasion::Control);
        let strikes = |fault| struck.iter().any(|&(struck, _)| struck == fault);
        let overlooks = if message.len() != MESSAGE_LEN {
            Some(Fault::LenientLength)
        } else if wire::is_known(&message) {
            None
        } else {
            Some(Fault::LenientOpcode)
        };
        if let Some(fault) = overlooks.filter(|&fault| strikes(fault)) {
            self.script.happened(fault);
            let start = place.offset as usize;
            self.below_mut().write_local(place.region, start..start + MESSAGE_LEN, &mut |room| {
                room.copy_from_slice(&wire::keepalive());
            });
            len = MESSAGE_LEN as u32;
        } else if let Ok(message) = message.try_into() {
            if let Some(memory) = wire::window(&message) {
                let first = self.peer_windows.map_or(memory, |(first, _)| first);
                self.peer_windows = Some((first, memory));
            }
            self.question_bits = wire::question_bits(&message).unwrap_or(self.question_bits);
        }
        Outcome::Received { len }
    }
}
