//! A server that offers features, and a scripted client.

use std::time::Duration;

use valkey_rdma_proto::ProtocolError;

use super::*;

#[test]
fn a_server_answers_with_what_it_offers_under_one_selector_at_any_time_f1_f5() {
    let mut scripted = server(TLS);
    for _ in 0..2 {
        for (select, bits) in [(FEATURE_SELECTOR, TLS.bits()), (0, 0), (0x5653, 0)] {
            scripted.says(ControlMessage::GetServerFeature(Features { select, bits: u64::MAX }));
            let answer = ControlMessage::GetServerFeature(Features { select, bits });
            assert_eq!(scripted.messages.last(), Some(&answer));
        }
        scripted.writes(1);
        scripted.acknowledge();
        assert_eq!(scripted.core.agreed(), Some(NONE), "asking chooses nothing");
    }
    scripted.assert_usable();
}

#[test]
fn a_server_that_offers_says_nothing_before_its_client_does_f7() {
    let config = Config { offers: TLS, keepalive: None, ..Config::new(Role::Server) };
    let mut scripted = scripted(config, Role::Server);
    scripted.says(REGISTER);
    assert_eq!(scripted.events, [Event::Connected]);
    scripted.says(QUESTION);
    scripted.announces(0, 0);
    assert_mute(&mut scripted);
    scripted.elapse(Duration::from_secs(3600));
    assert_mute(&mut scripted);
    assert_eq!(scripted.close_reason(), None, "an idle client breaks no clause");
}

#[test]
fn a_clients_first_bytes_without_a_choice_mean_that_no_feature_is_used_f7() {
    let mut scripted = server(TLS);
    scripted.writes(5);
    assert_eq!(scripted.events, [Event::Connected, agreed(NONE)]);
    assert_eq!(scripted.read(), 5);
    scripted.assert_usable();
}

#[test]
fn a_choice_is_known_before_the_bytes_behind_it_f6_f7() {
    for chosen in [TLS, DIRECT, TLS | DIRECT, NONE] {
        let mut scripted = server(TLS | DIRECT);
        scripted.says(choice(chosen));
        assert_eq!(scripted.events, [Event::Connected, agreed(chosen)]);
        assert_eq!(scripted.core.agreed(), Some(chosen));
        scripted.assert_usable();
    }
}

#[test]
fn a_choice_of_what_was_not_offered_ends_the_connection_f6() {
    for chosen in [DIRECT, TLS | DIRECT] {
        let mut scripted = server(TLS);
        scripted.says(choice(chosen));
        scripted.assert_refused(ProtocolError::FeatureNotOffered { features: DIRECT });
        assert_mute(&mut scripted);
    }
}

#[test]
fn a_choice_after_data_or_a_second_one_ends_the_connection_f6() {
    for first in [None, Some(NONE), Some(TLS)] {
        let mut scripted = server(TLS);
        match first {
            Some(chosen) => scripted.says(choice(chosen)),
            None => scripted.writes(1),
        }
        scripted.says(choice(TLS));
        scripted.assert_refused(ProtocolError::LateFeatures { features: TLS });
        assert_eq!(scripted.core.agreed(), Some(first.unwrap_or(NONE)), "what was agreed stays");
    }
}

#[test]
fn what_arrived_before_the_end_means_what_was_chosen_before_it_f6_f7() {
    for chosen in [None, Some(TLS)] {
        let mut scripted = server(TLS);
        scripted.acknowledge();
        scripted.disconnect();
        chosen.into_iter().for_each(|chosen| scripted.says(choice(chosen)));
        scripted.writes_late(5);
        assert_eq!(scripted.core.agreed(), Some(chosen.unwrap_or(NONE)));
        assert_eq!(scripted.read(), 5);
        assert_eq!(scripted.events, [Event::Connected, Event::Closed { reason: CloseReason::Peer }]);
    }
}

#[test]
fn a_server_that_offers_nothing_ignores_every_choice_f2_f6() {
    let mut scripted = server(NONE);
    for chosen in [TLS, TLS, NONE, FeatureSet::from_bits(u64::MAX)] {
        scripted.says(choice(chosen));
        scripted.assert_usable();
    }
    assert_eq!(scripted.events, [Event::Connected]);
}

#[test]
fn bits_under_another_selector_choose_nothing_f2() {
    let mut scripted = server(TLS);
    scripted.says(ControlMessage::SetClientFeature(Features { select: 0, bits: u64::MAX }));
    assert_mute(&mut scripted);
    scripted.says(choice(TLS));
    assert_eq!(scripted.core.agreed(), Some(TLS));
}
