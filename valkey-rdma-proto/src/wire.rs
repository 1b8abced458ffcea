//! The four control messages: 32 bytes each, big-endian, sent as one SEND.
//!
//! Big-endian exists only in this file. Integers everywhere else are in host order.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::ProtocolError;

/// Length of every control message in bytes (clause M-1).
pub const MESSAGE_LEN: usize = 32;

/// Opcode of [`ControlMessage::GetServerFeature`]. Source: valkey-doc `topics/RDMA.md`; valkey `src/rdma.c`.
pub const OPCODE_GET_SERVER_FEATURE: u16 = 0;
/// Opcode of [`ControlMessage::SetClientFeature`]. Source: as above.
pub const OPCODE_SET_CLIENT_FEATURE: u16 = 1;
/// Opcode of [`ControlMessage::Keepalive`]. Source: as above.
pub const OPCODE_KEEPALIVE: u16 = 2;
/// Opcode of [`ControlMessage::RegisterXferMemory`]. Source: as above.
pub const OPCODE_REGISTER_XFER_MEMORY: u16 = 3;

/// A control message, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlMessage {
    /// Asks for, or answers with, the server's feature bits. The server copies `select` into its answer.
    GetServerFeature(Features),
    /// Announces to the server which features the client uses. Not answered.
    SetClientFeature(Features),
    /// Shows that the sender is alive. Not answered.
    Keepalive,
    /// Offers memory to write into, and restarts the write offset at 0.
    RegisterXferMemory(XferMemory),
}

/// Feature bits under a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Features {
    /// Selects a set of bits; opaque to the answering side.
    pub select: u16,
    /// The bits.
    pub bits: u64,
}

/// Memory that one side offers to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct XferMemory {
    /// Address, as the offering side's device knows it.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Remote key.
    pub key: u32,
}

/// Shape: opcode 0..2, select 2..4, reserved 4..24, features 24..32.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct FeatureMessage {
    opcode: U16,
    select: U16,
    reserved: [u8; 20],
    features: U64,
}

/// Shape: opcode 0..2, reserved 2..32.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct KeepaliveMessage {
    opcode: U16,
    reserved: [u8; 30],
}

/// Shape: opcode 0..2, reserved 2..16, address 16..24, length 24..28, key 28..32.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RegisterMessage {
    opcode: U16,
    reserved: [u8; 14],
    addr: U64,
    len: U32,
    key: U32,
}

impl ControlMessage {
    /// Decodes a control message. Ignores reserved bytes, because Valkey 8.0.0-rc1 left them uninitialised.
    ///
    /// # Errors
    /// [`ProtocolError::MessageLength`] if there are not exactly 32 bytes, [`ProtocolError::Opcode`] if the
    /// opcode is unknown.
    ///
    /// Source: clauses M-1 and M-2; valkey `src/rdma.c`, `connRdmaHandleRecv`.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProtocolError> {
        let wrong_length =
            ProtocolError::MessageLength { len: u32::try_from(bytes.len()).unwrap_or(u32::MAX) };
        let bytes: &[u8; MESSAGE_LEN] = bytes.try_into().map_err(|_| wrong_length)?;
        match u16::from_be_bytes([bytes[0], bytes[1]]) {
            OPCODE_GET_SERVER_FEATURE => Ok(Self::GetServerFeature(FeatureMessage::decode(bytes))),
            OPCODE_SET_CLIENT_FEATURE => Ok(Self::SetClientFeature(FeatureMessage::decode(bytes))),
            OPCODE_KEEPALIVE => Ok(Self::Keepalive),
            OPCODE_REGISTER_XFER_MEMORY => {
                let message: RegisterMessage = zerocopy::transmute!(*bytes);
                Ok(Self::RegisterXferMemory(XferMemory {
                    addr: message.addr.get(),
                    len: message.len.get(),
                    key: message.key.get(),
                }))
            }
            opcode => Err(ProtocolError::Opcode { opcode }),
        }
    }

    /// Encodes a control message, with reserved bytes zero.
    pub fn encode(&self) -> [u8; MESSAGE_LEN] {
        match *self {
            Self::GetServerFeature(features) => FeatureMessage::encode(OPCODE_GET_SERVER_FEATURE, features),
            Self::SetClientFeature(features) => FeatureMessage::encode(OPCODE_SET_CLIENT_FEATURE, features),
            Self::Keepalive => {
                zerocopy::transmute!(KeepaliveMessage { opcode: OPCODE_KEEPALIVE.into(), reserved: [0; 30] })
            }
            Self::RegisterXferMemory(memory) => zerocopy::transmute!(RegisterMessage {
                opcode: OPCODE_REGISTER_XFER_MEMORY.into(),
                reserved: [0; 14],
                addr: memory.addr.into(),
                len: memory.len.into(),
                key: memory.key.into(),
            }),
        }
    }

    /// Returns the opcode of this message.
    pub fn opcode(&self) -> u16 {
        match self {
            Self::GetServerFeature(_) => OPCODE_GET_SERVER_FEATURE,
            Self::SetClientFeature(_) => OPCODE_SET_CLIENT_FEATURE,
            Self::Keepalive => OPCODE_KEEPALIVE,
            Self::RegisterXferMemory(_) => OPCODE_REGISTER_XFER_MEMORY,
        }
    }
}

impl FeatureMessage {
    fn decode(bytes: &[u8; MESSAGE_LEN]) -> Features {
        let message: FeatureMessage = zerocopy::transmute!(*bytes);
        Features { select: message.select.get(), bits: message.features.get() }
    }

    fn encode(opcode: u16, features: Features) -> [u8; MESSAGE_LEN] {
        zerocopy::transmute!(FeatureMessage {
            opcode: opcode.into(),
            select: features.select.into(),
            reserved: [0; 20],
            features: features.bits.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn register() -> ControlMessage {
        ControlMessage::RegisterXferMemory(XferMemory {
            addr: 0x0102_0304_0506_0708,
            len: 0x0010_0000,
            key: 0xdead_beef,
        })
    }

    #[test]
    fn register_has_its_fields_in_their_places_m4() {
        let mut expected = [0; MESSAGE_LEN];
        expected[1] = 3;
        expected[16..24].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        expected[24..28].copy_from_slice(&[0, 0x10, 0, 0]);
        expected[28..32].copy_from_slice(&[0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(register().encode(), expected);
    }

    #[test]
    fn features_have_their_fields_in_their_places_m5() {
        let message =
            ControlMessage::SetClientFeature(Features { select: 0x1234, bits: 0x8000_0000_0000_0001 });
        let mut expected = [0; MESSAGE_LEN];
        expected[..4].copy_from_slice(&[0, 1, 0x12, 0x34]);
        expected[24] = 0x80;
        expected[31] = 1;
        assert_eq!(message.encode(), expected);
    }

    #[test]
    fn reserved_bytes_are_ignored_m2() {
        let mut bytes = register().encode();
        bytes[2..16].fill(0xa5);
        assert_eq!(ControlMessage::decode(&bytes), Ok(register()));
    }

    #[test]
    fn other_lengths_are_refused_m1() {
        for len in [0, 31, 33, 64] {
            let bytes = alloc::vec![0; len];
            assert_eq!(ControlMessage::decode(&bytes), Err(ProtocolError::MessageLength { len: len as u32 }));
        }
    }

    proptest! {
        #[test]
        fn whatever_decodes_encodes_to_the_same_meaning(mut bytes: [u8; MESSAGE_LEN], opcode in 0u16..6) {
            bytes[..2].copy_from_slice(&opcode.to_be_bytes());
            match ControlMessage::decode(&bytes) {
                Ok(message) => {
                    prop_assert_eq!(message.opcode(), opcode);
                    prop_assert_eq!(ControlMessage::decode(&message.encode()), Ok(message));
                }
                Err(error) => prop_assert_eq!(error, ProtocolError::Opcode { opcode }),
            }
        }
    }
}
