//! Control messages and their dispatch: area M.

use valkey_rdma_proto::wire::{ControlMessage, Features, MESSAGE_LEN};
use valkey_rdma_proto::work::{FailureStatus, Outcome};
use valkey_rdma_proto::{ProtocolError, Role};

use crate::scripted::{PEER_MEMORY, Scripted};

const ROLES: [Role; 2] = [Role::Client, Role::Server];

#[test]
fn a_message_of_another_length_ends_the_connection_m1() {
    for role in ROLES {
        for len in [0, 31, 33, 64] {
            let mut scripted = Scripted::connected(role);
            scripted.says_bytes(&ControlMessage::Keepalive.encode().repeat(2)[..len as usize]);
            scripted.assert_refused(ProtocolError::MessageLength { len });
        }
    }
}

/// A receive has room for 32 bytes: adapters report a longer message as a length error, soft-RoCE as an error of the queue
/// pair.
#[test]
fn a_message_that_no_receive_can_hold_is_reported_as_the_peers_fault_m1() {
    for role in ROLES {
        for status in [FailureStatus::LocalLength, FailureStatus::LocalQueuePair] {
            let mut scripted = Scripted::connected(role);
            scripted.fail_receive(status);
            scripted.assert_refused(ProtocolError::MessageTooLong);
        }
    }
}

#[test]
fn an_unknown_opcode_ends_the_connection_m2() {
    for role in ROLES {
        for opcode in [4_u16, 9, 0xffff] {
            let mut scripted = Scripted::connected(role);
            let mut bytes = [0; MESSAGE_LEN];
            bytes[..2].copy_from_slice(&opcode.to_be_bytes());
            scripted.says_bytes(&bytes);
            scripted.assert_refused(ProtocolError::Opcode { opcode });
        }
    }
}

#[test]
fn reserved_bytes_change_nothing_m2() {
    let mut register = ControlMessage::RegisterXferMemory(PEER_MEMORY).encode();
    register[2..16].fill(0xa5);
    let mut keepalive = ControlMessage::Keepalive.encode();
    keepalive[2..].fill(0x5a);
    for role in ROLES {
        let mut scripted = Scripted::connected(role);
        scripted.says_bytes(&register);
        scripted.says_bytes(&keepalive);
        scripted.assert_usable();
    }
    let mut question = ControlMessage::GetServerFeature(Features { select: 5, bits: 0 }).encode();
    question[4..24].fill(0xff);
    let mut scripted = Scripted::connected(Role::Server);
    scripted.says_bytes(&question);
    assert_eq!(
        scripted.messages.last(),
        Some(&ControlMessage::GetServerFeature(Features { select: 5, bits: 0 }))
    );
}

#[test]
fn a_send_with_an_immediate_is_a_send_m3() {
    let mut scripted = Scripted::connected(Role::Server);
    let message = ControlMessage::RegisterXferMemory(PEER_MEMORY).encode();
    scripted.receive(Outcome::ReceivedWithImm { len: message.len() as u32, imm: u32::MAX }, &message);
    scripted.assert_usable();
}

#[test]
fn what_follows_a_refused_message_is_not_looked_at_m2() {
    let mut scripted = Scripted::connected(Role::Server);
    scripted.writes(10);
    scripted.announces(20, 4);
    scripted.assert_refused(ProtocolError::ImmediateTooSmall { announced: 4, written: 20 });
    // Already in the completion queue when the connection was refused. The stream has shifted: these bytes are
    // not the application's.
    scripted.writes(7);
    assert_eq!(scripted.read(), 10);
}
