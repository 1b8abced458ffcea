//! How connections end: area X.

use std::time::Duration;

use valkey_rdma_proto::wire::{ControlMessage, XferMemory};
use valkey_rdma_proto::work::{FailureStatus, SendOp};
use valkey_rdma_proto::{CloseReason, Config, DeliveryReport, Event, Role};

use crate::pair::{End, Pair};
use crate::scripted::{PEER_MEMORY, Scripted};

const LINGER: Duration = Duration::from_millis(100);

#[test]
fn the_last_reply_arrives_before_the_end_of_the_stream_x1() {
    // 1 to 1000 bytes in flight, closed at once: the QUIT case, every time.
    for len in 1..=1000 {
        let mut pair = Pair::usual();
        pair.write(End::Server, len);
        pair.close(End::Server);
        pair.elapse(LINGER);
        assert_eq!(pair.read(End::Client, u64::MAX), len);
        assert_eq!(pair.close_reason(End::Server), Some(CloseReason::Local));
        assert_eq!(pair.close_reason(End::Client), Some(CloseReason::Peer));
        assert_eq!(
            pair[End::Server].core.delivery_report(),
            DeliveryReport { delivered: len, unknown: 0, unsent: 0 }
        );
    }
}

#[test]
fn closing_waits_for_the_acknowledgement_of_the_last_send_x1() {
    let mut scripted = Scripted::connected(Role::Client);
    scripted.write(10);
    scripted.close();
    assert!(!scripted.disconnected);
    let fence = scripted.data.last().unwrap();
    assert_eq!((fence.local.len, fence.signalled), (0, true));
    assert!(matches!(fence.op, SendOp::Write { .. }), "unseen by the peer");
    scripted.acknowledge();
    assert!(scripted.disconnected);
    assert_eq!(scripted.close_reason(), Some(CloseReason::Local));
}

#[test]
fn what_waits_for_a_window_is_delivered_before_the_close_x1() {
    let mut scripted = Scripted::connected(Role::Client);
    scripted.write(PEER_MEMORY.len);
    assert_eq!(scripted.write(100), 100);
    scripted.close();
    scripted.acknowledge();
    assert!(!scripted.disconnected, "100 bytes wait");
    scripted.says(ControlMessage::RegisterXferMemory(PEER_MEMORY));
    scripted.acknowledge();
    assert_eq!(scripted.close_reason(), Some(CloseReason::Local));
    assert_eq!(scripted.core.delivery_report().delivered, u64::from(PEER_MEMORY.len) + 100);
}

#[test]
fn a_close_that_the_peer_does_not_let_end_is_ended_and_says_what_is_unknown_x1() {
    let mut scripted = Scripted::connected(Role::Client);
    scripted.write(PEER_MEMORY.len);
    scripted.write(100);
    scripted.close();
    scripted.elapse(Duration::from_secs(5));
    let bytes = u64::from(PEER_MEMORY.len) + 100;
    assert_eq!(scripted.close_reason(), Some(CloseReason::LocalUnfinished { bytes }));
    assert_eq!(scripted.core.delivery_report().unsent, 100);
    assert!(scripted.disconnected);
}

#[test]
fn nothing_is_taken_after_a_close_x1() {
    let mut scripted = Scripted::connected(Role::Client);
    let offered = scripted.core.reserve();
    assert!(!offered.is_empty());
    scripted.close();
    assert!(scripted.core.reserve().is_empty());
    // A caller that filled what it was offered before the close loses it and nothing else.
    scripted.core.commit(10);
    scripted.pump();
    scripted.acknowledge();
    assert!(scripted.data.iter().all(|send| send.local.len == 0));
    assert_eq!(scripted.core.delivery_report(), DeliveryReport::default());
    assert_eq!(scripted.close_reason(), Some(CloseReason::Local));
}

#[test]
fn a_server_gives_its_client_the_chance_to_disconnect_first_x2() {
    let mut scripted = Scripted::connected(Role::Server);
    scripted.write(10);
    scripted.close();
    scripted.acknowledge();
    assert!(!scripted.disconnected);
    scripted.elapse(LINGER - Duration::from_millis(1));
    assert!(!scripted.disconnected);
    scripted.elapse(Duration::from_millis(1));
    assert!(scripted.disconnected);
    assert_eq!(scripted.close_reason(), Some(CloseReason::Local));
}

#[test]
fn a_client_that_disconnects_meanwhile_makes_it_an_orderly_close_x2() {
    for overtaken in [false, true] {
        let mut scripted = Scripted::connected(Role::Server);
        scripted.write(10);
        scripted.close();
        scripted.acknowledge();
        if overtaken {
            scripted.fail(FailureStatus::Flushed);
        } else {
            scripted.disconnect();
        }
        assert_eq!(scripted.close_reason(), Some(CloseReason::Local));
    }
}

#[test]
fn bytes_that_arrived_before_the_disconnect_are_readable_after_it_x2() {
    let mut scripted = Scripted::connected(Role::Client);
    scripted.writes(100);
    scripted.disconnect();
    // Still in the completion queue when the disconnect is reported.
    scripted.writes_late(50);
    assert_eq!(scripted.read(), 150);
    assert_eq!(scripted.close_reason(), Some(CloseReason::Peer));
}

#[test]
fn a_side_whose_peer_disconnects_disconnects_too_x3() {
    for role in [Role::Client, Role::Server] {
        let mut scripted = Scripted::connected(role);
        scripted.disconnect();
        assert!(scripted.disconnected);
        scripted.disconnect();
        scripted.close();
        scripted.fail(FailureStatus::Flushed);
        assert_eq!(scripted.close_reason(), Some(CloseReason::Peer), "reported once");
        assert_eq!(scripted.core.poll_timeout(), None);
    }
}

#[test]
fn the_fate_of_every_byte_is_known_when_the_peer_is_gone_x4() {
    let mut scripted = Scripted::connected(Role::Client);
    scripted.write(2048);
    scripted.acknowledge();
    scripted.write(2048);
    scripted.write(100);
    scripted.fail(FailureStatus::RetryExceeded);
    assert_eq!(scripted.close_reason(), Some(CloseReason::Failed(FailureStatus::RetryExceeded)));
    assert_eq!(
        scripted.core.delivery_report(),
        DeliveryReport { delivered: 2048, unknown: 2048, unsent: 100 }
    );
}

#[test]
fn bytes_that_arrived_and_were_never_announced_are_not_delivered_x5() {
    let mut scripted = Scripted::new(Role::Client, Config::new(Role::Client));
    scripted.establish();
    scripted.says(ControlMessage::RegisterXferMemory(XferMemory { len: 5000, ..PEER_MEMORY }));
    scripted.write(5000);
    scripted.says(ControlMessage::RegisterXferMemory(XferMemory { len: 8000, ..PEER_MEMORY }));
    scripted.acknowledge();
    for _ in 0..15 {
        scripted.write(1);
    }
    // A piece around the end of the send buffer: a plain write, which is signalled because it is the 16th send,
    // and the announcement of both parts.
    let end = scripted.core.reserve().len() as u32;
    scripted.core.commit(end);
    assert_eq!(scripted.write(100), 100);
    let [.., plain, announcement] = scripted.data[..] else { panic!("two parts") };
    assert!(matches!(plain.op, SendOp::Write { .. }) && plain.signalled);
    assert!(matches!(announcement.op, SendOp::WriteWithImm { .. }));
    scripted.acknowledge_up_to(plain.wr_id);
    scripted.fail(FailureStatus::RetryExceeded);
    assert_eq!(
        scripted.core.delivery_report(),
        DeliveryReport { delivered: 5015, unknown: u64::from(end) + 100, unsent: 0 }
    );
}

#[test]
fn both_sides_may_close_at_once_x1() {
    let mut pair = Pair::usual();
    pair.write(End::Client, 700);
    pair.write(End::Server, 600);
    pair.close(End::Client);
    pair.close(End::Server);
    pair.elapse(Duration::from_secs(10));
    assert_eq!(pair.close_reason(End::Client), Some(CloseReason::Local));
    assert_eq!(pair.read(End::Server, u64::MAX), 700);
    // The client does not wait for what it will not read.
    assert_eq!(pair.close_reason(End::Server), Some(CloseReason::Peer));
    let DeliveryReport { delivered, unknown, unsent } = pair[End::Server].core.delivery_report();
    assert_eq!((delivered + unknown, unsent), (600, 0));
}

#[test]
fn a_failed_work_request_ends_the_connection_with_its_status_x3() {
    for status in [FailureStatus::RemoteAccess, FailureStatus::RnrRetryExceeded, FailureStatus::Other(77)] {
        let mut scripted = Scripted::connected(Role::Server);
        scripted.write(5);
        scripted.fail(status);
        assert_eq!(scripted.events[1..], [Event::Closed { reason: CloseReason::Failed(status) }]);
        assert!(scripted.disconnected);
    }
}

#[test]
fn a_device_that_is_gone_ends_the_connection_x3() {
    let mut scripted = Scripted::connected(Role::Server);
    scripted.core.handle_device_failure(scripted.now);
    scripted.pump();
    assert_eq!(scripted.close_reason(), Some(CloseReason::Device));
}
