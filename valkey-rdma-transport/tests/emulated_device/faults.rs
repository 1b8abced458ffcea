//! What goes wrong on request.

use std::future::poll_fn;
use std::time::Duration;

use tokio::time::Instant;
use valkey_rdma_proto::work::{FailureStatus, Outcome, SendOp, WrId};
use valkey_rdma_transport::device::{self, CmEvent, DeviceOptions};
use valkey_rdma_transport::emulated::{Device, Link};
use valkey_rdma_transport::{DeviceKind, TransportError};

use super::device_peer::{Peer, bounded};
use super::{ANY, accept_on, links, on, pair};

#[tokio::test]
async fn the_chosen_send_fails_as_asked_and_those_before_it_arrive() {
    for link in links() {
        let mut pair = pair(&link, |_, _| {}).await;
        pair.near.fail_send(3, FailureStatus::RemoteOperation);
        let chain: Vec<_> = (1..=4).map(|n| pair.active.request(n, 0, 1, SendOp::Send)).collect();
        pair.active.post(&chain);
        for (sequence, outcome) in [
            (1, Outcome::Sent),
            (2, Outcome::Sent),
            (3, Outcome::Failed(FailureStatus::RemoteOperation)),
            (4, Outcome::Failed(FailureStatus::Flushed)),
        ] {
            assert_eq!(pair.active.send_outcome(WrId::send(sequence)).await, outcome, "{link}");
        }
        for slot in 0..2 {
            assert_eq!(
                pair.passive.outcome(WrId::receive(slot)).await,
                Outcome::Received { len: 1 },
                "{link}"
            );
        }
    }
}

#[tokio::test]
async fn a_broken_link_disconnects_both_sides() {
    for link in links() {
        let mut pair = pair(&link, |_, _| {}).await;
        pair.near.break_links();
        assert_eq!(pair.active.cm_event().await, CmEvent::Disconnected, "{link}");
        assert_eq!(pair.passive.cm_event().await, CmEvent::Disconnected, "{link}");
    }
}

#[tokio::test]
async fn a_connection_being_made_is_broken_as_well() {
    for link in links() {
        let (near, far) = (Device::new(link.clone()), Device::new(link.clone()));
        let mut listener = device::listen(DeviceKind::Emulated, ANY, &on(&far)).await.expect("listens");
        let open = device::open(DeviceKind::Emulated, listener.local_addr(), &on(&near)).await;
        let mut active = Peer::new(open.expect("opens"));
        active.endpoint.establish().expect("asks");
        let mut passive = accept_on(listener.as_mut(), &on(&far)).await;
        near.break_links();
        let event = active.cm_event().await;
        assert!(matches!(event, CmEvent::Rejected { .. }), "{link}: {event:?}");
        passive.endpoint.establish().expect("accepts");
        assert_eq!(passive.cm_event().await, CmEvent::Disconnected, "{link}");
    }
}

#[tokio::test]
async fn a_connection_being_made_over_a_cut_link_is_never_established() {
    let near = Device::new(Link::InProcess);
    let mut listener = device::listen(DeviceKind::Emulated, ANY, &on(&near)).await.expect("listens");
    let open = device::open(DeviceKind::Emulated, listener.local_addr(), &on(&near)).await;
    let mut active = Peer::new(open.expect("opens"));
    active.endpoint.establish().expect("asks");
    let mut passive = accept_on(listener.as_mut(), &on(&near)).await;
    near.cut_links();
    passive.endpoint.establish().expect("accepts");
    for side in [&mut active, &mut passive] {
        let event = poll_fn(|cx| std::task::Poll::Ready(side.endpoint.poll_cm_event(cx))).await;
        assert!(event.is_pending(), "{event:?}");
    }
}

#[tokio::test]
async fn queues_beyond_the_device_are_refused_and_inline_sends_asked_down() {
    for link in links() {
        let device = Device::new(link.clone());
        let mut listener = device::listen(DeviceKind::Emulated, ANY, &on(&device)).await.expect("listens");
        let greedy = DeviceOptions { send_depth: u32::MAX, receive_depth: 1, ..on(&device) };
        let refused = device::open(DeviceKind::Emulated, listener.local_addr(), &greedy).await.err();
        assert!(matches!(refused, Some(TransportError::QueueDepth { .. })), "{link}: {refused:?}");
        let inline = DeviceOptions { max_inline: u32::MAX, ..on(&device) };
        let open = device::open(DeviceKind::Emulated, listener.local_addr(), &inline).await;
        let mut active = Peer::new(open.expect("opens"));
        assert_eq!(active.endpoint.limits().max_inline, 1024, "{link}");
        active.endpoint.establish().expect("asks");
        let request = bounded(poll_fn(|cx| listener.poll_request(cx))).await.expect("a request");
        let refused = request.accept(&greedy).err();
        assert!(matches!(refused, Some(TransportError::QueueDepth { .. })), "{link}: {refused:?}");
        let event = active.cm_event().await;
        assert!(matches!(event, CmEvent::Rejected { .. }), "{link}: {event:?}");
    }
}

/// Time is virtual.
#[tokio::test(start_paused = true)]
async fn a_shorter_retry_timeout_holds_for_who_waits_already() {
    let mut pair = pair(&Link::InProcess, |near, _| near.retry_timeout(Duration::from_secs(3600))).await;
    pair.near.cut_links();
    pair.active.send(1, &[1]);
    tokio::task::yield_now().await;
    let begin = Instant::now();
    pair.near.retry_timeout(Duration::from_secs(1));
    let outcome = pair.active.send_outcome(WrId::send(1)).await;
    assert_eq!(outcome, Outcome::Failed(FailureStatus::RetryExceeded));
    assert!(begin.elapsed() < Duration::from_secs(2), "by the new time, not by the old");
}

#[test]
fn time_is_kept_though_the_runtime_that_kept_it_is_gone() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let first = runtime();
    let mut pair = first.block_on(async {
        let mut pair = pair(&Link::InProcess, |near, _| near.retry_timeout(Duration::from_millis(20))).await;
        pair.near.cut_links();
        pair.active.send(1, &[1]);
        tokio::task::yield_now().await;
        pair
    });
    drop(first);
    runtime().block_on(async {
        let outcome = pair.active.send_outcome(WrId::send(1)).await;
        assert_eq!(outcome, Outcome::Failed(FailureStatus::RetryExceeded));
    });
}

#[tokio::test]
async fn a_cut_link_is_silent_until_somebody_sends() {
    for link in links() {
        let mut pair = pair(&link, |_, _| {}).await;
        pair.near.cut_links();
        for device in [&pair.near, &pair.far] {
            device.retry_timeout(Duration::from_millis(20));
        }
        for side in [&mut pair.active, &mut pair.passive] {
            side.send(1, &[1]);
            let outcome = side.send_outcome(WrId::send(1)).await;
            assert_eq!(outcome, Outcome::Failed(FailureStatus::RetryExceeded), "{link}");
        }
        pair.active.endpoint.disconnect();
        pair.passive.endpoint.disconnect();
        for side in [&mut pair.active, &mut pair.passive] {
            let event = poll_fn(|cx| std::task::Poll::Ready(side.endpoint.poll_cm_event(cx))).await;
            assert!(event.is_pending(), "{link}: {event:?}");
        }
    }
}

#[tokio::test]
async fn a_dropped_completion_event_leaves_the_completion() {
    for link in links() {
        let mut pair = pair(&link, |_, _| {}).await;
        pair.far.drop_completion_event(1);
        pair.passive.endpoint.arm().expect("arms");
        pair.active.send(1, &[1]);
        assert_eq!(pair.active.outcome(WrId::send(1)).await, Outcome::Sent, "{link}");
        assert!(pair.passive.is_quiet().await, "{link}");
        assert_eq!(pair.passive.completed().len(), 1, "{link}");
        // Only that one.
        pair.passive.endpoint.arm().expect("arms");
        pair.active.send(2, &[2]);
        bounded(poll_fn(|cx| pair.passive.endpoint.poll_completion_event(cx))).await.expect("an event");
    }
}
