//! Control messages as bytes. Faults need invalid messages, which the codec cannot encode.

use valkey_rdma_transport::device::wire::{
    self, ControlMessage, MESSAGE_LEN, OPCODE_GET_SERVER_FEATURE, OPCODE_KEEPALIVE,
    OPCODE_REGISTER_XFER_MEMORY,
};

pub(super) type Message = [u8; MESSAGE_LEN];

/// A message of nothing but an opcode.
pub(super) fn bare(opcode: u16) -> Message {
    let mut message = [0; MESSAGE_LEN];
    message[..2].copy_from_slice(&opcode.to_be_bytes());
    message
}

pub(super) fn keepalive() -> Message {
    bare(OPCODE_KEEPALIVE)
}

pub(super) fn opcode(message: &Message) -> u16 {
    u16::from_be_bytes([message[0], message[1]])
}

pub(super) fn set_opcode(message: &mut Message, opcode: u16) {
    message[..2].copy_from_slice(&opcode.to_be_bytes());
}

pub(super) fn is_known(message: &[u8]) -> bool {
    ControlMessage::decode(message).is_ok()
}

/// The window that a Register offers: address and length.
pub(super) fn window(message: &Message) -> Option<wire::XferMemory> {
    match ControlMessage::decode(message) {
        Ok(ControlMessage::RegisterXferMemory(memory)) => Some(memory),
        _ => None,
    }
}

/// The feature bits of a question.
pub(super) fn question_bits(message: &Message) -> Option<u64> {
    match ControlMessage::decode(message) {
        Ok(ControlMessage::GetServerFeature(features)) => Some(features.bits),
        _ => None,
    }
}

pub(super) fn set_feature_bits(message: &mut Message, bits: u64) {
    message[24..].copy_from_slice(&bits.to_be_bytes());
}

pub(super) fn register(memory: wire::XferMemory) -> Message {
    ControlMessage::RegisterXferMemory(memory).encode()
}

/// The reserved bytes.
pub(super) fn reserved(message: &mut Message) -> &mut [u8] {
    match opcode(message) {
        OPCODE_REGISTER_XFER_MEMORY => &mut message[2..16],
        OPCODE_KEEPALIVE => &mut message[2..],
        _ => &mut message[4..24],
    }
}

pub(super) fn is_register(message: &Message) -> bool {
    opcode(message) == OPCODE_REGISTER_XFER_MEMORY
}

pub(super) fn is_keepalive(message: &Message) -> bool {
    opcode(message) == OPCODE_KEEPALIVE
}

pub(super) fn is_answer(message: &Message) -> bool {
    opcode(message) == OPCODE_GET_SERVER_FEATURE
}
