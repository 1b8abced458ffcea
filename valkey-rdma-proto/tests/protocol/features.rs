//! Feature messages: area F. No feature bit is defined.

use valkey_rdma_proto::wire::{ControlMessage, Features};
use valkey_rdma_proto::{CloseReason, ProtocolError, Role};

use crate::pair::{End, Pair};
use crate::scripted::Scripted;

fn question(select: u16) -> ControlMessage {
    ControlMessage::GetServerFeature(Features { select, bits: 0 })
}

#[test]
fn a_server_answers_with_the_selector_and_no_bits_f1() {
    let mut scripted = Scripted::connected(Role::Server);
    for select in [0, 1, 0x1234, 0xffff] {
        scripted.says(question(select));
        assert_eq!(scripted.messages.last(), Some(&question(select)));
    }
    scripted.acknowledge();
    scripted.assert_usable();
}

#[test]
fn a_clients_bits_are_never_answered_and_unknown_ones_ignored_f2() {
    for bits in [0, 1, u64::MAX] {
        let mut scripted = Scripted::connected(Role::Server);
        let before = scripted.messages.len();
        scripted.says(ControlMessage::SetClientFeature(Features { select: 0, bits }));
        assert_eq!(scripted.messages.len(), before);
        scripted.assert_usable();
    }
}

#[test]
fn by_default_features_are_never_mentioned_f3() {
    let mut pair = Pair::usual();
    for _ in 0..20 {
        pair.transfer(End::Client, 1000);
        pair.transfer(End::Server, 1000);
    }
    for end in End::BOTH {
        let counters = pair[end].core.counters();
        assert_eq!(counters.probes, 0);
        assert_eq!(counters.messages_sent, counters.registers_sent);
    }
}

#[test]
fn a_server_never_speaks_of_features_first_f3() {
    let mut scripted = Scripted::connected(Role::Server);
    for _ in 0..1000 {
        scripted.write(1);
        scripted.acknowledge();
    }
    assert_eq!(scripted.messages.len(), 1, "its Register");
}

#[test]
fn a_client_refuses_feature_messages_it_did_not_ask_for_f3() {
    for message in [question(0), ControlMessage::SetClientFeature(Features { select: 0, bits: 0 })] {
        let mut scripted = Scripted::connected(Role::Client);
        scripted.says(message);
        scripted.assert_refused(ProtocolError::Opcode { opcode: message.opcode() });
    }
}

#[test]
fn a_client_that_asks_and_takes_no_answers_is_ended_with_bounded_memory_f4() {
    let mut scripted = Scripted::connected(Role::Server);
    let mut asked = 0;
    while scripted.close_reason().is_none() {
        scripted.says(question(0));
        asked += 1;
        assert!(asked < 3000);
    }
    let refused = ProtocolError::TooManyRequests { limit: 1024 };
    assert_eq!(scripted.close_reason(), Some(CloseReason::Protocol(refused)));
}

#[test]
fn a_client_that_takes_its_answers_may_ask_for_ever_f4() {
    let mut scripted = Scripted::connected(Role::Server);
    for _ in 0..3000 {
        scripted.says(question(9));
        scripted.acknowledge();
    }
    assert_eq!(scripted.messages.len(), 3001);
    scripted.assert_usable();
}
