//! What must hold for any bytes that claim to be a control message. Shared with the fuzzer (`fuzz/`).

use valkey_rdma_proto::ProtocolError;
use valkey_rdma_proto::wire::{ControlMessage, MESSAGE_LEN};

/// Decodes `bytes`, which is refused for one of two reasons only; what is accepted survives a round trip.
///
/// # Panics
/// If not.
pub fn check(bytes: &[u8]) {
    match ControlMessage::decode(bytes) {
        Ok(message) => {
            let written = message.encode();
            assert_eq!(written[..2], bytes[..2]);
            assert_eq!(ControlMessage::decode(&written), Ok(message));
        }
        Err(ProtocolError::MessageLength { len }) => {
            assert_ne!(bytes.len(), MESSAGE_LEN);
            assert_eq!(len as usize, bytes.len());
        }
        Err(ProtocolError::Opcode { opcode }) => assert!(opcode > 3 && bytes.len() == MESSAGE_LEN),
        Err(other) => panic!("{other}"),
    }
}
