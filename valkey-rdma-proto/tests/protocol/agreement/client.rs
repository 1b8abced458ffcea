//! A client that wants features, and a scripted server.

use std::time::Duration;

use valkey_rdma_proto::ProtocolError;

use super::*;

#[test]
fn a_client_asks_right_behind_its_register_and_once_f5() {
    for (wants, requires) in [(TLS, NONE), (NONE, TLS), (DIRECT, TLS)] {
        let mut scripted = client(wants, requires);
        assert_eq!(scripted.messages.len(), 2);
        assert!(matches!(scripted.messages[0], ControlMessage::RegisterXferMemory(_)));
        assert_eq!(scripted.messages[1], QUESTION);
        scripted.says(REGISTER);
        scripted.elapse(Duration::from_secs(9));
        assert_eq!(scripted.messages.len(), 2);
        assert_mute(&mut scripted);
        assert_eq!(scripted.core.counters().probes, 0, "it was not asked for credits");
    }
}

#[test]
fn a_client_that_wants_nothing_asks_nothing_whatever_it_would_offer_f5() {
    let config = Config { offers: TLS, ..Config::new(Role::Client) };
    let mut scripted = scripted(config, Role::Client);
    scripted.says(REGISTER);
    assert_eq!((scripted.messages.len(), scripted.core.agreed()), (1, Some(NONE)));
    assert_eq!(scripted.events, [Event::Connected]);
    scripted.assert_usable();
}

#[test]
fn a_client_chooses_what_it_wants_of_what_is_offered_before_its_data_f6() {
    let unknown = FeatureSet::from_bits(1 << 63);
    for (wants, requires, offered, chosen) in [
        (TLS, NONE, TLS | DIRECT | unknown, TLS),
        (TLS | DIRECT, NONE, DIRECT, DIRECT),
        (DIRECT, TLS, TLS, TLS),
        (NONE, TLS | DIRECT, TLS | DIRECT, TLS | DIRECT),
    ] {
        let mut scripted = client(wants, requires);
        scripted.says(answer(offered));
        assert_eq!(
            scripted.messages.last(),
            Some(&choice(chosen)),
            "it does not wait for the server's Register"
        );
        scripted.says(REGISTER);
        assert_eq!(scripted.events, [agreed(chosen), Event::Connected]);
        assert_eq!(scripted.core.agreed(), Some(chosen));
        scripted.assert_usable();
        assert_eq!(scripted.messages.len(), 3);
    }
}

#[test]
fn the_answer_may_come_after_the_register_f5() {
    let mut scripted = client(TLS, NONE);
    scripted.says(REGISTER);
    assert_eq!((scripted.events.len(), scripted.core.is_connected()), (0, false));
    scripted.says(answer(TLS));
    assert_eq!(scripted.events, [agreed(TLS), Event::Connected]);
}

#[test]
fn a_server_that_knows_no_features_is_used_without_f5_f6() {
    let mut scripted = client(TLS | DIRECT, NONE);
    scripted.says(REGISTER);
    scripted.says(answer(NONE));
    assert_eq!(scripted.events, [agreed(NONE), Event::Connected]);
    assert_eq!(scripted.messages.len(), 2, "nothing is set");
    scripted.assert_usable();
}

#[test]
fn bits_under_another_selector_offer_nothing_f3_f5() {
    for select in [0, 0x5653, 0x5256] {
        let mut scripted = client(TLS, NONE);
        scripted.says(ControlMessage::GetServerFeature(Features { select, bits: u64::MAX }));
        scripted.says(REGISTER);
        assert_eq!(scripted.events, [agreed(NONE), Event::Connected]);
        scripted.assert_usable();
    }
}

#[test]
fn what_is_required_and_not_offered_ends_the_connection_before_a_byte_f8() {
    let unknown = FeatureSet::from_bits(1 << 40);
    for (offered, missing) in [(NONE, TLS | DIRECT), (DIRECT | unknown, TLS)] {
        for register_first in [true, false] {
            let mut scripted = client(NONE, TLS | DIRECT);
            if register_first {
                scripted.says(REGISTER);
                scripted.writes(5);
            }
            scripted.says(answer(offered));
            assert_eq!(scripted.events, [Event::Closed { reason: CloseReason::NotOffered { missing } }]);
            assert!(scripted.disconnected);
            assert_eq!(scripted.messages.len(), 2);
            assert_mute(&mut scripted);
        }
    }
}

#[test]
fn the_handshakes_deadline_covers_the_answer_f8_h4() {
    for registered in [true, false] {
        let mut scripted = client(TLS, NONE);
        if registered {
            scripted.says(REGISTER);
        }
        let after = Duration::from_secs(10);
        scripted.elapse(after - Duration::from_millis(1));
        assert_eq!(scripted.close_reason(), None);
        scripted.elapse(Duration::from_millis(1));
        let reason = if registered {
            CloseReason::NoAnswer { after }
        } else {
            CloseReason::HandshakeTimeout { after }
        };
        assert_eq!(scripted.close_reason(), Some(reason));
    }
}

#[test]
fn a_second_answer_is_one_to_a_question_not_asked_f3() {
    let mut scripted = client(TLS, NONE);
    scripted.says(REGISTER);
    scripted.says(answer(TLS));
    scripted.says(answer(TLS));
    scripted.assert_refused(ProtocolError::Opcode { opcode: 0 });
}

#[test]
fn an_answer_for_credits_changes_nothing_that_is_agreed_c3_f5() {
    let config = Config { wants: TLS, credit_limit: 8, ..Config::new(Role::Client) };
    let mut scripted = scripted(config, Role::Client);
    scripted.says(REGISTER);
    scripted.says(answer(NONE));
    while scripted.core.counters().probes == 0 {
        assert_eq!(scripted.write(1), 1);
        scripted.acknowledge();
    }
    let messages = scripted.messages.len();
    scripted.says(answer(TLS));
    assert_eq!(scripted.core.agreed(), Some(NONE));
    assert_eq!(scripted.messages.len(), messages);
    scripted.assert_usable();
}

#[test]
fn bytes_before_the_answer_wait_and_end_the_connection_if_a_feature_would_be_used_f7() {
    let early = |offered| {
        let mut scripted = client(TLS, NONE);
        scripted.says(REGISTER);
        scripted.writes(5);
        assert_mute(&mut scripted);
        scripted.says(answer(offered));
        scripted
    };
    let mut plain = early(DIRECT);
    assert_eq!(plain.events, [agreed(NONE), Event::Connected]);
    assert_eq!(plain.read(), 5);
    plain.assert_usable();
    let mut offered = early(TLS);
    offered.assert_refused(ProtocolError::DataBeforeAgreement);
    assert_eq!((offered.read(), offered.messages.len()), (0, 2));
}

#[test]
fn a_client_that_is_closed_before_the_answer_chooses_nothing_f6_x1() {
    let mut scripted = Scripted::new(Role::Client, Config { requires: TLS, ..Config::new(Role::Client) });
    scripted.establish();
    scripted.says(REGISTER);
    scripted.close();
    assert!(!scripted.disconnected, "the question is not acknowledged");
    scripted.says(answer(NONE));
    scripted.acknowledge();
    assert_eq!(scripted.close_reason(), Some(CloseReason::Local));
    assert_eq!((scripted.messages.len(), scripted.core.agreed()), (2, None));
}
