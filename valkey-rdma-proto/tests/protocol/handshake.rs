//! From the established queue pair to both windows known: area H.

use std::time::Duration;

use valkey_rdma_proto::wire::ControlMessage;
use valkey_rdma_proto::{CloseReason, Config, Event, Role};

use crate::pair::{End, Pair, Setup};
use crate::scripted::{PEER_MEMORY, Scripted};

fn both() -> (Setup, Setup) {
    (Setup::new(Role::Client), Setup::new(Role::Server))
}

#[test]
fn every_receive_is_posted_before_connecting_h1() {
    let (client, server) = both();
    let pair = Pair::new(&client, &server);
    for end in End::BOTH {
        assert_eq!(pair[end].posted.len(), 1024);
        assert!(pair[end].sends.is_empty(), "nothing is said before that");
    }
}

#[test]
fn each_side_registers_once_it_is_established_h2() {
    for role in [Role::Client, Role::Server] {
        let mut scripted = Scripted::new(role, Config::new(role));
        scripted.establish();
        let [ControlMessage::RegisterXferMemory(memory)] = scripted.messages[..] else {
            panic!("a Register")
        };
        assert_eq!((memory.len, memory.key), (crate::scripted::WINDOW, 7));
        assert!(scripted.events.is_empty() && !scripted.core.is_connected());
        scripted.establish();
        assert_eq!(scripted.messages.len(), 1, "established twice is established once");
    }
}

#[test]
fn the_window_and_buffer_lengths_are_reported_h2() {
    let mut scripted = Scripted::new(Role::Client, Config::new(Role::Client));
    assert_eq!(scripted.core.peer_window(), 0, "not known yet");
    scripted = scripted.connect();
    assert_eq!(scripted.core.peer_window(), PEER_MEMORY.len);
    assert_eq!(scripted.core.window(), crate::scripted::WINDOW);
    assert_eq!(scripted.core.send_buffer(), 8192);
}

#[test]
fn registers_may_cross_in_any_order_h2() {
    // Which side sees ESTABLISHED first, and whether a Register arrives before that, is a matter of luck.
    for first in End::BOTH {
        for deliver_before_second in [false, true] {
            let (client, server) = both();
            let mut pair = Pair::new(&client, &server);
            pair.establish(first);
            if deliver_before_second {
                pair.deliver(first);
                pair.poll(first.other());
                assert!(!pair[first.other()].core.is_connected(), "its own Register is not sent");
                assert!(pair[first.other()].events.is_empty());
            }
            pair.establish(first.other());
            pair.settle();
            for end in End::BOTH {
                assert_eq!(pair[end].events, [Event::Connected]);
                assert!(pair[end].core.is_connected());
            }
            pair.transfer(End::Client, 5000);
            pair.transfer(End::Server, 5000);
        }
    }
}

#[test]
fn what_is_written_early_waits_for_the_peers_register_h3() {
    let mut scripted = Scripted::new(Role::Client, Config::new(Role::Client));
    assert_eq!(scripted.write(100), 100, "before the connection is established");
    scripted.establish();
    assert_eq!(scripted.write(50), 50);
    assert!(scripted.data.is_empty());
    scripted.says(ControlMessage::RegisterXferMemory(PEER_MEMORY));
    assert_eq!(scripted.data.iter().map(|send| send.local.len).sum::<u32>(), 150);
}

#[test]
fn a_reply_is_held_while_the_clients_register_is_late_and_then_delivered_whole_h3() {
    let (client, server) = both();
    let mut pair = Pair::new(&client, &server);
    pair.establish(End::Server);
    pair.elapse(Duration::from_secs(2));
    assert_eq!(pair.write(End::Server, 600), 600);
    assert!(pair[End::Server].sends.is_empty());
    pair.establish(End::Client);
    pair.settle();
    assert_eq!(pair.read(End::Client, u64::MAX), 600);
}

#[test]
fn a_peer_that_never_registers_is_given_up_h4() {
    for role in [Role::Client, Role::Server] {
        let mut scripted = Scripted::new(role, Config::new(role));
        scripted.establish();
        scripted.acknowledge();
        scripted.elapse(Duration::from_millis(9_999));
        assert_eq!(scripted.close_reason(), None);
        scripted.elapse(Duration::from_millis(1));
        assert_eq!(
            scripted.close_reason(),
            Some(CloseReason::HandshakeTimeout { after: Duration::from_secs(10) })
        );
        assert!(scripted.disconnected);
    }
}

#[test]
fn a_client_that_vanishes_before_it_is_established_is_given_up_h4() {
    let mut scripted = Scripted::new(Role::Server, Config::new(Role::Server));
    scripted.core.handle_accepted(scripted.now);
    scripted.elapse(Duration::from_millis(9_999));
    assert_eq!(scripted.close_reason(), None);
    scripted.elapse(Duration::from_millis(1));
    assert_eq!(
        scripted.close_reason(),
        Some(CloseReason::HandshakeTimeout { after: Duration::from_secs(10) })
    );
    assert!(scripted.disconnected);
}

#[test]
fn a_client_gives_up_no_request_in_flight_h6() {
    let mut scripted = Scripted::new(Role::Client, Config::new(Role::Client));
    scripted.core.handle_accepted(scripted.now);
    assert_eq!(scripted.core.poll_timeout(), None);
}

#[test]
fn a_register_after_the_handshake_deadline_connects_nothing_h4() {
    let mut scripted = Scripted::new(Role::Server, Config::new(Role::Server));
    scripted.establish();
    // Both wait for us: the deadline is looked at first, and the work it leads to is not asked for in between.
    let now = scripted.core.poll_timeout().unwrap() + Duration::from_secs(10);
    scripted.core.handle_timeout(now);
    scripted.says(ControlMessage::RegisterXferMemory(PEER_MEMORY));
    assert_eq!(
        scripted.events,
        [Event::Closed { reason: CloseReason::HandshakeTimeout { after: Duration::from_secs(10) } }]
    );
}

#[test]
fn a_side_that_closes_while_connecting_completes_the_connection_first_h6() {
    let mut scripted = Scripted::new(Role::Client, Config::new(Role::Client));
    scripted.close();
    assert!(!scripted.disconnected && scripted.close_reason().is_none());
    scripted.establish();
    assert!(scripted.disconnected && scripted.messages.is_empty());
    assert_eq!(scripted.close_reason(), Some(CloseReason::Local));
}

#[test]
fn bytes_written_before_the_peer_registers_are_delivered_before_closing_x1() {
    for closes_before_it_is_established in [true, false] {
        let mut scripted = Scripted::new(Role::Server, Config::new(Role::Server));
        assert_eq!(scripted.write(10), 10);
        if closes_before_it_is_established {
            scripted.close();
            scripted.establish();
        } else {
            scripted.establish();
            scripted.close();
        }
        assert!(!scripted.disconnected, "the bytes wait for the peer's window");
        scripted.says(ControlMessage::RegisterXferMemory(PEER_MEMORY));
        assert_eq!(scripted.data.iter().map(|send| send.local.len).sum::<u32>(), 10);
        scripted.acknowledge();
        scripted.elapse(Duration::from_millis(100));
        assert_eq!(scripted.close_reason(), Some(CloseReason::Local));
    }
}

#[test]
fn bytes_that_find_no_window_before_the_close_deadline_are_reported_as_undelivered_x1() {
    let mut scripted = Scripted::new(Role::Client, Config::new(Role::Client));
    assert_eq!(scripted.write(10), 10);
    scripted.close();
    scripted.establish();
    scripted.elapse(Duration::from_secs(5));
    assert_eq!(scripted.close_reason(), Some(CloseReason::LocalUnfinished { bytes: 10 }));
}

#[test]
fn a_register_without_the_establishment_does_not_lift_the_deadline_h4() {
    let mut scripted = Scripted::new(Role::Server, Config::new(Role::Server));
    scripted.core.handle_accepted(scripted.now);
    scripted.says(ControlMessage::RegisterXferMemory(PEER_MEMORY));
    scripted.elapse(Duration::from_secs(10));
    assert_eq!(
        scripted.close_reason(),
        Some(CloseReason::HandshakeTimeout { after: Duration::from_secs(10) })
    );
}

#[test]
fn a_server_that_accepts_and_disconnects_is_recognised_h7() {
    let mut scripted = Scripted::new(Role::Client, Config::new(Role::Client));
    scripted.establish();
    scripted.disconnect();
    assert_eq!(scripted.events, [Event::Closed { reason: CloseReason::Peer }], "and never connected");
}
