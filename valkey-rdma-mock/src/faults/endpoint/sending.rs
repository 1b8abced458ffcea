//! What goes wrong with what is sent.

use std::time::Duration;

use tokio::time::Instant;
use valkey_rdma_transport::TransportError;
use valkey_rdma_transport::device::DeviceLayer;
use valkey_rdma_transport::device::wire::XferMemory;
use valkey_rdma_transport::device::work::{SendOp, SendRequest, Slice};

use super::super::fault::{Fault, Occasion};
use super::super::wire::{self, Message};
use super::{BEYOND_ANY_WINDOW, FaultyEndpoint, WRONG_KEY};

impl FaultyEndpoint {
    /// Passes a message on, or what is left of it.
    pub(super) fn send_message(&mut self, mut request: SendRequest, chain: &mut Vec<SendRequest>) {
        let Ok(original) = Message::try_from(self.read(request.local)) else { return chain.push(request) };
        let mut message = original;
        let mut again = false;
        let occasion = match () {
            () if wire::is_register(&message) => Some(Occasion::Register),
            () if wire::is_keepalive(&message) => Some(Occasion::Keepalive),
            () if wire::is_answer(&message) => Some(Occasion::Answer),
            () => None,
        };
        let mut struck = occasion.map(|occasion| self.script.strike(occasion)).unwrap_or_default();
        struck.extend(self.script.strike(Occasion::Message));
        let mut erased = false;
        for (fault, value) in struck {
            let before = (erased, message);
            match fault {
                Fault::RegisterMissing | Fault::KeepaliveMissing | Fault::AnswerMissing => erased = true,
                Fault::RegisterLate => {
                    let due = Instant::now() + Duration::from_millis(value.into());
                    self.late.push((due, message));
                    erased = true;
                }
                Fault::RegisterTwice => again = true,
                Fault::RegisterLength => edit_register(&mut message, |memory| memory.len = value),
                Fault::RegisterKey => edit_register(&mut message, |memory| memory.key ^= WRONG_KEY),
                Fault::Reserved => self.script.noise(wire::reserved(&mut message)),
                Fault::AnswerOpcode => wire::set_opcode(&mut message, value as u16),
                Fault::AnswerSelect => message[2] ^= 0xff,
                Fault::AnswerEcho => wire::set_feature_bits(&mut message, self.question_bits),
                _ => {}
            }
            // What is not sent cannot be wrong.
            if !before.0 && (erased, message) != before {
                self.script.happened(fault);
            }
        }
        if wire::is_register(&message) {
            self.last_register = Some(message);
        }
        if erased {
            self.erase(&mut request);
        } else if message != original {
            request.local = self.stage(&message);
        }
        chain.push(request);
        if again && self.add_message(chain, &message) {
            self.script.happened(Fault::RegisterTwice);
        }
    }

    /// Passes an announced write on, or what is left of it.
    pub(super) fn send_data(&mut self, mut request: SendRequest, chain: &mut Vec<SendRequest>) {
        let SendOp::WriteWithImm { mut addr, mut rkey, mut imm } = request.op else {
            return chain.push(request);
        };
        let mut pieces = 1;
        let mut erased = false;
        let mut keepalives = 0;
        for (fault, value) in self.script.strike(Occasion::Data) {
            let before = (imm, addr, rkey, request.local.offset, erased);
            let mut felt = false;
            match fault {
                Fault::ImmOver => imm = BEYOND_ANY_WINDOW,
                Fault::ImmWrap => imm = u32::MAX,
                Fault::ImmShort => imm = imm.wrapping_sub(1),
                Fault::ImmSwapped => imm = imm.swap_bytes(),
                Fault::ImmZero => {
                    let nothing = self.nothing();
                    felt = self.add(chain, nothing, SendOp::WriteWithImm { addr, rkey, imm: 0 }).is_some();
                }
                Fault::ImmSplit => pieces = value.min(request.local.len),
                Fault::WriteFirst => {
                    let half = request.local.len / 2;
                    let first = Slice { len: half, ..request.local };
                    if self.add(chain, first, SendOp::Write { addr, rkey }).is_some() {
                        addr += u64::from(half);
                        request.local = skip(request.local, half);
                    }
                }
                Fault::TailMissing => erased |= self.fills_window(addr, request.local.len),
                Fault::AddressOff => addr += 1,
                Fault::AddressStale => {
                    if let Some((first, now)) = self.peer_windows {
                        addr = addr.wrapping_sub(now.addr).wrapping_add(first.addr);
                        rkey = first.key;
                    }
                }
                Fault::RegisterEarly => {
                    felt = self.last_register.is_some_and(|message| self.add_message(chain, &message));
                }
                Fault::KeepaliveFlood => keepalives = value,
                Fault::Opcode => felt = self.add_message(chain, &wire::bare(value as u16)),
                Fault::MessageLength => {
                    let mut bytes = wire::keepalive().to_vec();
                    bytes.resize(value as usize, 0);
                    felt = self.add_message(chain, &bytes);
                }
                Fault::Garbage => {
                    let Slice { region, offset, len } = request.local;
                    let mut noise = vec![0; len as usize];
                    self.script.noise(&mut noise);
                    let range = offset as usize..(offset + len) as usize;
                    self.below_mut().write_local(region, range, &mut |room| room.copy_from_slice(&noise));
                    felt = true;
                }
                _ => {}
            }
            if felt || (imm, addr, rkey, request.local.offset, erased) != before {
                self.script.happened(fault);
            }
        }
        let whole = request.local.len;
        // Every piece but the last is one of ours.
        for left in (2..=pieces).rev() {
            let len = request.local.len / left;
            let piece = Slice { len, ..request.local };
            if self.add(chain, piece, SendOp::WriteWithImm { addr, rkey, imm: len }).is_none() {
                break;
            }
            addr += u64::from(len);
            // Another fault may have made it smaller than what was written.
            imm = imm.wrapping_sub(len);
            request.local = skip(request.local, len);
        }
        if request.local.len < whole {
            self.script.happened(Fault::ImmSplit);
        }
        request.op = SendOp::WriteWithImm { addr, rkey, imm };
        if erased {
            self.erase(&mut request);
        }
        chain.push(request);
        let added = (0..keepalives).filter(|_| self.add_message(chain, &wire::keepalive())).count();
        if added > 0 {
            self.script.happened(Fault::KeepaliveFlood);
        }
    }

    /// Whether this is a direct transfer: it uses other memory of the peer than its window.
    pub(super) fn is_transfer(&self, request: SendRequest, rkey: u32) -> bool {
        request.local.len > 0 && self.peer_windows.is_some_and(|(_, now)| now.key != rkey)
    }

    /// What becomes of a direct transfer.
    pub(super) fn transfer(&mut self, mut request: SendRequest) -> Result<SendRequest, TransportError> {
        for (fault, value) in self.script.strike(Occasion::Transfer) {
            let (SendOp::Write { addr, rkey } | SendOp::Read { addr, rkey }) = &mut request.op else { break };
            match fault {
                Fault::TransferKey => *rkey ^= WRONG_KEY,
                Fault::TransferOff => *addr = addr.wrapping_add(value.into()),
                Fault::TransferMissing => self.erase(&mut request),
                Fault::TransferHalf => {
                    request.local.len /= 2;
                    self.stalled_until = Some(Instant::now() + Duration::from_millis(value.into()));
                }
                Fault::TransferLate => {
                    self.postpone(request)?;
                    self.erase(&mut request);
                }
                _ => continue,
            }
            self.script.happened(fault);
        }
        Ok(request)
    }

    fn fills_window(&self, addr: u64, len: u32) -> bool {
        self.peer_windows
            .is_some_and(|(_, now)| addr + u64::from(len) == now.addr.wrapping_add(now.len.into()))
    }
}

fn skip(slice: Slice, len: u32) -> Slice {
    Slice { offset: slice.offset + len, len: slice.len - len, ..slice }
}

fn edit_register(message: &mut Message, edit: impl FnOnce(&mut XferMemory)) {
    if let Some(mut memory) = wire::window(message) {
        edit(&mut memory);
        *message = wire::register(memory);
    }
}
