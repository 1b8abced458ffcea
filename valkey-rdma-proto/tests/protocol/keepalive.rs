//! Keepalives and the idle deadline: area K.

use std::time::Duration;

use valkey_rdma_proto::wire::ControlMessage;
use valkey_rdma_proto::{CloseReason, Config, Role};

use crate::pair::{End, Pair, Setup};
use crate::scripted::Scripted;

const PERIOD: Duration = Duration::from_secs(3);

fn keepalives(scripted: &Scripted) -> usize {
    scripted.messages.iter().filter(|message| **message == ControlMessage::Keepalive).count()
}

#[test]
fn a_server_sends_one_every_3_s_whatever_the_traffic_k1() {
    let mut scripted = Scripted::connected(Role::Server);
    for second in 1..=30 {
        scripted.elapse(Duration::from_secs(1));
        scripted.writes(1);
        scripted.read();
        scripted.write(1);
        scripted.acknowledge();
        assert_eq!(keepalives(&scripted), second / 3);
    }
}

#[test]
fn a_client_sends_none_by_default_k1() {
    let mut scripted = Scripted::connected(Role::Client);
    scripted.elapse(Duration::from_secs(3600));
    assert_eq!(keepalives(&scripted), 0);

    let config = Config { keepalive: Some(PERIOD), ..Config::new(Role::Client) };
    let mut scripted = Scripted::new(Role::Client, config).connect();
    scripted.elapse(PERIOD);
    assert_eq!(keepalives(&scripted), 1);
}

#[test]
fn keepalives_are_accepted_at_any_time_and_never_answered_k1() {
    for role in [Role::Client, Role::Server] {
        let mut scripted = Scripted::new(role, Config::new(role));
        scripted.says(ControlMessage::Keepalive);
        let mut scripted = scripted.connect();
        for _ in 0..1000 {
            scripted.says(ControlMessage::Keepalive);
            scripted.elapse(Duration::from_millis(1));
        }
        assert_eq!(scripted.messages.len(), 1, "the Register");
        scripted.assert_usable();
    }
}

#[test]
fn at_most_one_is_in_flight_and_a_peer_that_takes_none_is_dead_k2() {
    let mut scripted = Scripted::connected(Role::Server);
    scripted.elapse(PERIOD * 20);
    assert_eq!(keepalives(&scripted), 1);
    assert_eq!(scripted.close_reason(), None, "19 periods missed");
    scripted.elapse(PERIOD);
    assert_eq!(scripted.close_reason(), Some(CloseReason::KeepaliveTimeout { missed: 20 }));
    assert!(scripted.disconnected);
}

#[test]
fn one_acknowledgement_starts_the_count_again_k2() {
    let mut scripted = Scripted::connected(Role::Server);
    for _ in 0..5 {
        scripted.elapse(PERIOD * 19);
        scripted.acknowledge();
    }
    assert_eq!(scripted.close_reason(), None);
}

#[test]
fn a_clients_keepalives_stay_within_its_credits_k2() {
    let config = Config { keepalive: Some(PERIOD), credit_limit: 8, ..Config::new(Role::Client) };
    let mut scripted = Scripted::new(Role::Client, config).connect();
    for _ in 0..100 {
        scripted.elapse(PERIOD);
        // The device acknowledges; the server behind it polls nothing.
        scripted.acknowledge();
    }
    assert!(scripted.messages.len() <= 8, "{}", scripted.messages.len());
    assert_eq!(scripted.close_reason(), None);
}

#[test]
fn a_period_of_zero_is_none_k1() {
    let config = Config { keepalive: Some(Duration::ZERO), ..Config::new(Role::Server) };
    let mut scripted = Scripted::new(Role::Server, config).connect();
    scripted.elapse(Duration::from_secs(10));
    assert_eq!(keepalives(&scripted), 0);
}

#[test]
fn two_idle_hours_leave_every_receive_posted_k3() {
    let mut pair = Pair::usual();
    pair.elapse(Duration::from_secs(2 * 3600));
    assert_eq!(pair[End::Server].core.counters().messages_sent, 1 + 2 * 3600 / 3);
    for end in End::BOTH {
        assert_eq!(pair[end].posted.len(), 1024);
        assert_eq!(pair.close_reason(end), None);
    }
    pair.transfer(End::Client, 100);
}

#[test]
fn a_silent_peer_is_ended_only_when_an_idle_deadline_is_set_k4() {
    for role in [Role::Client, Role::Server] {
        let mut scripted = Scripted::new(role, Config { keepalive: None, ..Config::new(role) }).connect();
        scripted.elapse(Duration::from_secs(86_400));
        assert_eq!(scripted.close_reason(), None);

        let config =
            Config { keepalive: None, idle_timeout: Some(Duration::from_secs(9)), ..Config::new(role) };
        let mut scripted = Scripted::new(role, config).connect();
        for _ in 0..5 {
            scripted.elapse(Duration::from_secs(8));
            scripted.says(ControlMessage::Keepalive);
            scripted.elapse(Duration::from_secs(8));
            scripted.writes(1);
        }
        scripted.elapse(Duration::from_secs(8));
        assert_eq!(scripted.close_reason(), None);
        scripted.elapse(Duration::from_secs(1));
        assert_eq!(scripted.close_reason(), Some(CloseReason::IdleTimeout { after: Duration::from_secs(9) }));
    }
}

#[test]
fn a_dead_server_is_found_by_an_idle_client_k4() {
    let mut client = Setup::new(Role::Client);
    client.config.idle_timeout = Some(PERIOD * 3);
    let mut pair = Pair::connected(&client, &Setup::new(Role::Server));
    pair.elapse(PERIOD * 100);
    assert_eq!(pair.close_reason(End::Client), None, "its keepalives are heard");
}
