//! The device contract, as one suite for every device and every link. See `device_peer` for how one is chosen.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::task::Poll;

use super::device_peer::{
    MESSAGE, Peer, RECEIVES, WINDOW, accept, bounded, connect, device, listen, open, options, pair,
};
use valkey_rdma_proto::work::{FailureStatus, Outcome, SendOp, SendRequest, Slice, WrId};
use valkey_rdma_transport::TransportError;
use valkey_rdma_transport::device::{self as devices, Access, CmEvent, EndpointOptions};

mod lending;

fn write_to(peer: &Peer, offset: u64) -> SendOp {
    SendOp::Write { addr: peer.window.addr + offset, rkey: peer.window.rkey }
}

fn announce_to(peer: &Peer, offset: u64, imm: u32) -> SendOp {
    SendOp::WriteWithImm { addr: peer.window.addr + offset, rkey: peer.window.rkey, imm }
}

fn pattern(seed: u8, len: u32) -> Vec<u8> {
    (0..len).map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

// --- Connecting ----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn both_sides_know_each_other_once_connected() {
    let mut listener = listen().await;
    let (active, passive) = connect(listener.as_mut()).await;
    let (active, passive) = (active.endpoint, passive.endpoint);
    assert_ne!(listener.local_addr().port(), 0);
    assert_eq!(active.peer_addr(), listener.local_addr());
    assert_eq!(passive.local_addr(), listener.local_addr());
    assert_eq!(passive.peer_addr(), active.local_addr());
    for endpoint in [active, passive] {
        assert_eq!(endpoint.device().kind, device());
        assert!(!endpoint.device().name.is_empty());
        let limits = endpoint.limits();
        assert!(limits.send_depth >= options().send_depth, "{limits:?}");
        assert!(limits.receive_depth >= options().receive_depth, "{limits:?}");
        assert!(limits.max_message >= 1 << 20, "{limits:?}");
    }
}

#[tokio::test]
async fn connecting_where_nobody_listens_is_rejected() {
    let addr = listen().await.local_addr();
    let mut active = open(addr).await;
    active.endpoint.establish().expect("asks");
    let event = active.cm_event().await;
    assert!(matches!(event, CmEvent::Rejected { .. }), "{event:?}");
}

#[tokio::test]
async fn who_asks_is_known_before_anything_is_made_and_is_rejected_by_a_drop() {
    let mut listener = listen().await;
    let mut active = open(listener.local_addr()).await;
    active.endpoint.establish().expect("asks");
    let request = bounded(poll_fn(|cx| listener.poll_request(cx))).await.expect("a request");
    assert_eq!(request.peer_addr(), active.endpoint.local_addr());
    drop(request);
    let event = active.cm_event().await;
    assert!(matches!(event, CmEvent::Rejected { reason: 28 }), "{event:?}");
    connect(listener.as_mut()).await;
}

#[tokio::test]
async fn a_request_outlives_its_listener() {
    let mut listener = listen().await;
    let mut active = open(listener.local_addr()).await;
    active.endpoint.establish().expect("asks");
    let request = bounded(poll_fn(|cx| listener.poll_request(cx))).await.expect("a request");
    drop(listener);
    let mut passive = Peer::new(request.accept(&options()).expect("an endpoint"));
    passive.endpoint.establish().expect("accepts");
    assert_eq!(active.cm_event().await, CmEvent::Established);
}

#[tokio::test]
async fn a_device_of_another_name_is_not_used() {
    let wanted = EndpointOptions { device: Some("no-such-device".to_owned()), ..options() };
    let addr = listen().await.local_addr();
    let outcome = bounded(devices::open(device(), addr, &wanted)).await;
    let error = outcome.err().expect("an error");
    let named = matches!(error, TransportError::WrongDevice { .. } | TransportError::UnknownLink { .. });
    assert!(named, "{error:?}");
}

#[tokio::test]
async fn a_request_dropped_before_it_is_accepted_is_rejected() {
    let mut listener = listen().await;
    let mut active = open(listener.local_addr()).await;
    active.endpoint.establish().expect("asks");
    drop(accept(listener.as_mut()).await);
    let event = active.cm_event().await;
    assert!(matches!(event, CmEvent::Rejected { .. }), "{event:?}");
    // The listener goes on.
    connect(listener.as_mut()).await;
}

#[tokio::test]
async fn a_listener_that_goes_rejects_the_requests_it_has() {
    let mut listener = listen().await;
    let mut active = open(listener.local_addr()).await;
    active.endpoint.establish().expect("asks");
    // The request is there for certain once a later one is.
    let mut later = open(listener.local_addr()).await;
    later.endpoint.establish().expect("asks");
    let first = accept(listener.as_mut()).await;
    drop(listener);
    drop(first);
    for side in [&mut active, &mut later] {
        let event = side.cm_event().await;
        assert!(matches!(event, CmEvent::Rejected { .. }), "{event:?}");
    }
}

#[tokio::test]
async fn an_address_is_listened_on_once() {
    let listener = listen().await;
    let second = devices::listen(device(), listener.local_addr(), &options()).await;
    assert!(matches!(second, Err(TransportError::Listen { .. })));
}

#[tokio::test]
async fn an_active_side_that_vanishes_leaves_the_listener_unharmed() {
    let mut listener = listen().await;
    let mut vanishing = open(listener.local_addr()).await;
    vanishing.endpoint.establish().expect("asks");
    let mut passive = accept(listener.as_mut()).await;
    drop(vanishing);
    // Accepting may fail at once, or the end is reported later: the peer was first.
    if passive.endpoint.establish().is_ok() {
        let event = passive.cm_event().await;
        assert_ne!(event, CmEvent::Established);
    }
    connect(listener.as_mut()).await;
}

#[tokio::test]
async fn many_requests_at_once_are_all_accepted() {
    const COUNT: usize = 20;
    let mut listener = listen().await;
    let mut active = Vec::new();
    for _ in 0..COUNT {
        let mut peer = open(listener.local_addr()).await;
        peer.endpoint.establish().expect("asks");
        active.push(peer);
    }
    let mut passive = Vec::new();
    for _ in 0..COUNT {
        let mut peer = accept(listener.as_mut()).await;
        peer.endpoint.establish().expect("accepts");
        passive.push(peer);
    }
    for peer in active.iter_mut().chain(&mut passive) {
        assert_eq!(peer.cm_event().await, CmEvent::Established);
    }
}

#[tokio::test]
async fn opening_may_move_between_threads() {
    let addr = listen().await.local_addr();
    let opened = tokio::spawn(async move { open(addr).await.endpoint.peer_addr() });
    assert_eq!(opened.await.expect("opens"), addr);
}

// --- Messages ------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_message_arrives_with_its_length() {
    let (mut active, mut passive) = pair().await;
    active.send(1, &pattern(1, MESSAGE));
    assert_eq!(active.outcome(WrId::send(1)).await, Outcome::Sent);
    assert_eq!(passive.outcome(WrId::receive(0)).await, Outcome::Received { len: MESSAGE });
    assert_eq!(passive.read_slot(0), pattern(1, MESSAGE));

    // The other way, and shorter than the slot.
    passive.send(1, &pattern(2, MESSAGE - 1));
    assert_eq!(active.outcome(WrId::receive(0)).await, Outcome::Received { len: MESSAGE - 1 });
    assert_eq!(active.read_slot(0)[..MESSAGE as usize - 1], pattern(2, MESSAGE - 1));
}

#[tokio::test]
async fn messages_take_receives_in_the_order_of_posting() {
    let (mut active, mut passive) = pair().await;
    passive.post_receives(RECEIVES..RECEIVES + 2);
    let count = RECEIVES + 2;
    for slot in 0..count {
        active.stage(slot * MESSAGE, &pattern(slot as u8, MESSAGE));
    }
    let chain = (0..count).map(|slot| active.request(slot.into(), slot * MESSAGE, MESSAGE, SendOp::Send));
    let chain = chain.collect::<Vec<_>>();
    active.post(&chain);
    for slot in 0..count {
        assert_eq!(passive.outcome(WrId::receive(slot)).await, Outcome::Received { len: MESSAGE });
        assert_eq!(passive.read_slot(slot), pattern(slot as u8, MESSAGE));
    }
    for slot in 0..count {
        assert_eq!(active.outcome(WrId::send(slot.into())).await, Outcome::Sent);
    }
}

#[tokio::test]
async fn messages_around_the_inline_limit_arrive_intact() {
    let (mut active, mut passive) = pair().await;
    let limit = active.endpoint.limits().max_inline;
    for (sequence, len) in [limit.saturating_sub(1), limit, limit + 1].into_iter().enumerate() {
        let bytes = pattern(len as u8, len);
        active.stage(0, &bytes);
        let op = announce_to(&passive, 0, len);
        active.post(&[active.request(sequence as u64, 0, len, op)]);
        assert_eq!(active.outcome(WrId::send(sequence as u64)).await, Outcome::Sent);
        let expected = Outcome::Written { byte_len: len, imm: len };
        assert_eq!(passive.outcome(WrId::receive(sequence as u32)).await, expected);
        assert_eq!(passive.read_window(0..len as usize), bytes);
    }
}

#[tokio::test]
async fn a_message_that_finds_no_receive_waits_for_one() {
    let (mut active, mut passive) = pair().await;
    for sequence in 0..RECEIVES {
        active.send(sequence.into(), &pattern(sequence as u8, MESSAGE));
        assert_eq!(active.outcome(WrId::send(sequence.into())).await, Outcome::Sent);
    }
    active.send(99, &pattern(99, MESSAGE));
    for slot in 0..RECEIVES {
        assert_eq!(passive.outcome(WrId::receive(slot)).await, Outcome::Received { len: MESSAGE });
    }
    passive.post_receives(RECEIVES..RECEIVES + 1);
    assert_eq!(passive.outcome(WrId::receive(RECEIVES)).await, Outcome::Received { len: MESSAGE });
    assert_eq!(passive.read_slot(RECEIVES), pattern(99, MESSAGE));
    assert_eq!(active.outcome(WrId::send(99)).await, Outcome::Sent);
}

#[tokio::test]
async fn a_message_longer_than_its_receive_fails_on_both_sides() {
    let (mut active, mut passive) = pair().await;
    active.send(1, &pattern(1, MESSAGE + 1));
    let sent = active.send_outcome(WrId::send(1)).await;
    // Devices differ in what they call it.
    let refused = [FailureStatus::RemoteInvalidRequest, FailureStatus::RemoteOperation];
    assert!(refused.map(Outcome::Failed).contains(&sent), "{sent:?}");
    let received = passive.outcome(WrId::receive(0)).await;
    assert!(matches!(received, Outcome::Failed(_)), "{received:?}");
}

// --- Writes --------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn writes_arrive_before_the_immediate_that_announces_them() {
    let (mut active, mut passive) = pair().await;
    let bytes = pattern(3, 512);
    active.stage(0, &bytes);
    let mut chain = [
        active.request(1, 0, 128, write_to(&passive, 0)),
        active.request(2, 128, 256, write_to(&passive, 128)),
        active.request(3, 384, 128, announce_to(&passive, 384, 0x0102_0304)),
    ];
    chain[0].signalled = false;
    chain[1].signalled = false;
    active.post(&chain);
    // The length is that of the last write alone.
    let expected = Outcome::Written { byte_len: 128, imm: 0x0102_0304 };
    assert_eq!(passive.outcome(WrId::receive(0)).await, expected);
    assert_eq!(passive.read_window(0..512), bytes);
    assert_eq!(passive.read_slot(0), [0; MESSAGE as usize], "the receive's buffer is left alone");
    // One completion vouches for all three.
    assert_eq!(active.outcome(WrId::send(3)).await, Outcome::Sent);
    assert_eq!(active.completed(), []);
}

#[tokio::test]
async fn a_large_write_crosses_packets_unharmed() {
    let (mut active, mut passive) = pair().await;
    let bytes = pattern(4, WINDOW);
    active.stage(0, &bytes);
    active.post(&[active.request(1, 0, WINDOW, announce_to(&passive, 0, WINDOW))]);
    let expected = Outcome::Written { byte_len: WINDOW, imm: WINDOW };
    assert_eq!(passive.outcome(WrId::receive(0)).await, expected);
    assert!(passive.read_window(0..WINDOW as usize) == bytes, "bytes differ");
}

#[tokio::test]
async fn an_immediate_without_bytes_uses_a_receive() {
    let (mut active, mut passive) = pair().await;
    active.post(&[active.request(1, 0, 0, announce_to(&passive, 0, 7))]);
    assert_eq!(passive.outcome(WrId::receive(0)).await, Outcome::Written { byte_len: 0, imm: 7 });
    assert_eq!(active.outcome(WrId::send(1)).await, Outcome::Sent);
}

#[tokio::test]
async fn a_write_of_nothing_is_a_fence() {
    let (mut active, mut passive) = pair().await;
    active.stage(0, &pattern(5, 64));
    let mut chain = [
        active.request(1, 0, 64, announce_to(&passive, 0, 64)),
        active.request(2, 0, MESSAGE, SendOp::Send),
        active.request(3, 0, 0, write_to(&passive, 0)),
    ];
    chain[0].signalled = false;
    chain[1].signalled = false;
    active.post(&chain);
    assert_eq!(active.outcome(WrId::send(3)).await, Outcome::Sent);
    // What was posted before it has arrived, and nothing else.
    let ids = passive.completed().iter().map(|done| done.wr_id).collect::<Vec<_>>();
    assert_eq!(ids, [WrId::receive(0), WrId::receive(1)]);
    assert_eq!(passive.read_window(0..64), pattern(5, 64));
}

#[tokio::test]
async fn a_write_of_nothing_is_a_fence_at_the_end_of_the_window_too() {
    let (mut active, passive) = pair().await;
    active.post(&[active.request(1, 0, 0, write_to(&passive, WINDOW.into()))]);
    assert_eq!(active.outcome(WrId::send(1)).await, Outcome::Sent);
}

#[tokio::test]
async fn a_chain_fills_the_send_queue_and_its_completion_frees_it() {
    let (mut active, mut passive) = pair().await;
    let depth = options().send_depth;
    for round in 0..3 {
        let chain = (0..depth).map(|n| SendRequest {
            signalled: n + 1 == depth,
            ..active.request((round * depth + n).into(), n * 8, 8, write_to(&passive, u64::from(n) * 8))
        });
        let chain = chain.collect::<Vec<_>>();
        let bytes = pattern(round as u8, depth * 8);
        active.stage(0, &bytes);
        active.post(&chain);
        assert_eq!(active.outcome(WrId::send((round * depth + depth - 1).into())).await, Outcome::Sent);
        assert_eq!(passive.read_window(0..bytes.len()), bytes);
    }
    assert_eq!(passive.completed(), []);
}

async fn refused_write(op: impl FnOnce(&mut Peer) -> SendOp) {
    let (mut active, mut passive) = pair().await;
    let op = op(&mut passive);
    let mut chain = [active.request(1, 0, 64, op), active.request(2, 0, MESSAGE, SendOp::Send)];
    chain[0].signalled = false;
    active.post(&chain);
    // A failure completes, asked for or not, and flushes what is behind it.
    assert_eq!(active.send_outcome(WrId::send(1)).await, Outcome::Failed(FailureStatus::RemoteAccess));
    assert_eq!(active.send_outcome(WrId::send(2)).await, Outcome::Failed(FailureStatus::Flushed));
    assert!(passive.read_window(0..WINDOW as usize).iter().all(|byte| *byte == 0), "nothing was written");
}

#[tokio::test]
async fn a_write_beyond_the_window_is_refused() {
    refused_write(|passive| write_to(passive, u64::from(WINDOW) - 63)).await;
}

#[tokio::test]
async fn an_announced_write_beyond_the_window_is_refused() {
    refused_write(|passive| announce_to(passive, u64::from(WINDOW) - 63, 64)).await;
}

#[tokio::test]
async fn a_write_below_the_window_is_refused() {
    refused_write(|passive| SendOp::Write { addr: passive.window.addr - 1, rkey: passive.window.rkey }).await;
}

#[tokio::test]
async fn a_write_with_a_wrong_key_is_refused() {
    refused_write(|passive| SendOp::Write { addr: passive.window.addr, rkey: passive.window.rkey ^ 0x5555 })
        .await;
}

#[tokio::test]
async fn a_write_into_memory_without_remote_access_is_refused() {
    refused_write(|passive| {
        let local = passive.endpoint.register(WINDOW, Access::Local).expect("memory");
        SendOp::Write { addr: local.addr, rkey: local.rkey }
    })
    .await;
}

#[tokio::test]
async fn a_key_opens_no_other_connection() {
    let (_, stranger) = pair().await;
    let window = stranger.window;
    refused_write(|_| SendOp::Write { addr: window.addr, rkey: window.rkey }).await;
    assert!(stranger.read_window(0..WINDOW as usize).iter().all(|byte| *byte == 0), "nothing was written");
}

#[tokio::test]
async fn bytes_outside_of_the_local_region_are_not_sent() {
    let (mut active, passive) = pair().await;
    for len in [16, 4096] {
        let (mut active, passive) = pair().await;
        let local = Slice { region: active.staging.id, offset: WINDOW - len + 1, len };
        let op = write_to(&passive, 0);
        active.post(&[SendRequest { wr_id: WrId::send(1), local, op, signalled: true }]);
        assert_eq!(active.send_outcome(WrId::send(1)).await, Outcome::Failed(FailureStatus::LocalProtection));
    }
    // Up to the last byte they are.
    active.post(&[active.request(1, WINDOW - 16, 16, write_to(&passive, u64::from(WINDOW) - 16))]);
    assert_eq!(active.outcome(WrId::send(1)).await, Outcome::Sent);
}

// --- Events --------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_completion_raises_no_event_unless_armed() {
    let (mut active, mut passive) = pair().await;
    active.send(1, &[1]);
    assert_eq!(active.outcome(WrId::send(1)).await, Outcome::Sent);
    assert!(passive.is_quiet().await, "never armed");
    passive.endpoint.arm().expect("arms");
    assert!(passive.is_quiet().await, "armed after the completion");
    active.send(2, &[2]);
    bounded(poll_fn(|cx| passive.endpoint.poll_completion_event(cx))).await.expect("an event");
    assert_eq!(passive.completed().len(), 2);
    assert!(passive.is_quiet().await, "one event for one arming");
}

#[tokio::test]
async fn a_poll_takes_no_more_than_asked() {
    let (mut active, mut passive) = pair().await;
    for sequence in 0..10 {
        active.send(sequence, &[0]);
        assert_eq!(active.outcome(WrId::send(sequence)).await, Outcome::Sent);
    }
    let mut found = Vec::new();
    passive.endpoint.poll(&mut found, 0).expect("polls");
    assert_eq!(found.len(), 0);
    passive.endpoint.poll(&mut found, 3).expect("polls");
    assert_eq!(found.len(), 3);
    passive.endpoint.poll(&mut found, 100).expect("polls");
    let slots = found.iter().map(|done| done.wr_id).collect::<Vec<_>>();
    assert_eq!(slots, (0..10).map(WrId::receive).collect::<Vec<_>>());
}

/// Answers every message with one, `rounds` times. `keep_armed`: arm only after an event was taken.
async fn rally(mut peer: Peer, rounds: u32, serves: bool, keep_armed: bool) -> Peer {
    let (mut received, mut sent, mut armed) = (0, 0, false);
    while received < rounds {
        if sent < received + u32::from(serves) {
            let mut request = peer.request(sent.into(), 0, 1, SendOp::Send);
            request.signalled = sent % 8 == 0;
            peer.post(&[request]);
            sent += 1;
        }
        if !(armed && keep_armed) {
            peer.endpoint.arm().expect("arms");
            armed = true;
        }
        let found = peer.completed();
        for completion in &found {
            if let Outcome::Received { .. } = completion.outcome {
                let slot = received % RECEIVES;
                assert_eq!(completion.wr_id, WrId::receive(slot));
                peer.post_receives(slot..slot + 1);
                received += 1;
            }
        }
        if found.is_empty() {
            bounded(poll_fn(|cx| peer.endpoint.poll_completion_event(cx))).await.expect("an event");
            armed = false;
        }
    }
    if sent < rounds {
        peer.post(&[peer.request(sent.into(), 0, 1, SendOp::Send)]);
    }
    peer
}

async fn no_wake_up_is_lost(keep_armed: bool) {
    const ROUNDS: u32 = 1000;
    let (active, passive) = pair().await;
    let serving = tokio::spawn(rally(active, ROUNDS, true, keep_armed));
    let answering = tokio::spawn(rally(passive, ROUNDS, false, keep_armed));
    let (serving, answering) = (serving.await, answering.await);
    drop((serving.expect("serves"), answering.expect("answers")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_when_armed_every_time() {
    no_wake_up_is_lost(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_when_armed_after_events_only() {
    no_wake_up_is_lost(true).await;
}

// --- The end -------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn disconnecting_flushes_and_tells_the_peer() {
    let (mut active, mut passive) = pair().await;
    active.endpoint.disconnect();
    assert_eq!(passive.cm_event().await, CmEvent::Disconnected);
    passive.endpoint.disconnect();
    for side in [&mut active, &mut passive] {
        let mut flushed = BTreeSet::new();
        for _ in 0..RECEIVES {
            let completion = side.completion().await;
            assert_eq!(completion.outcome, Outcome::Failed(FailureStatus::Flushed));
            flushed.insert(completion.wr_id.0);
        }
        assert_eq!(flushed.len(), RECEIVES as usize);
        side.endpoint.disconnect();
    }
}

#[tokio::test]
async fn who_disconnects_first_hears_of_the_other_once() {
    let (mut active, mut passive) = pair().await;
    active.endpoint.disconnect();
    assert_eq!(passive.cm_event().await, CmEvent::Disconnected);
    passive.endpoint.disconnect();
    assert_eq!(active.cm_event().await, CmEvent::Disconnected);
    active.endpoint.disconnect();
    drop(passive);
    let more = poll_fn(|cx| Poll::Ready(active.endpoint.poll_cm_event(cx))).await;
    assert!(more.is_pending(), "{more:?}");
}

#[tokio::test]
async fn an_end_connects_once() {
    let mut listener = listen().await;
    let (mut active, mut passive) = connect(listener.as_mut()).await;
    for side in [&mut active, &mut passive] {
        let error = side.endpoint.establish().expect_err("it is connected");
        assert!(matches!(error, TransportError::Device { call: "rdma_connect", .. }), "{error:?}");
        side.endpoint.disconnect();
        side.endpoint.establish().expect_err("it was connected");
    }
    // Nothing has come of that: the next request is the next one's.
    let mut next = open(listener.local_addr()).await;
    next.endpoint.establish().expect("asks");
    let request = bounded(poll_fn(|cx| listener.poll_request(cx))).await.expect("a request");
    assert_eq!(request.peer_addr(), next.endpoint.local_addr());
}

#[tokio::test]
async fn disconnecting_before_accepting_rejects() {
    let mut listener = listen().await;
    let mut active = open(listener.local_addr()).await;
    active.endpoint.establish().expect("asks");
    let mut passive = accept(listener.as_mut()).await;
    passive.endpoint.disconnect();
    let event = active.cm_event().await;
    assert!(matches!(event, CmEvent::Rejected { .. }), "{event:?}");
    passive.endpoint.establish().expect_err("it was rejected");
}

#[tokio::test]
async fn dropping_an_endpoint_tells_the_peer() {
    let (active, mut passive) = pair().await;
    drop(active);
    assert_eq!(passive.cm_event().await, CmEvent::Disconnected);
    let (mut active, passive) = pair().await;
    drop(passive);
    assert_eq!(active.cm_event().await, CmEvent::Disconnected);
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_the_peer_left() {
    let (mut active, mut passive) = pair().await;
    active.send(1, &pattern(9, MESSAGE));
    assert_eq!(active.outcome(WrId::send(1)).await, Outcome::Sent);
    drop(active);
    assert_eq!(passive.cm_event().await, CmEvent::Disconnected);
    passive.endpoint.disconnect();
    assert_eq!(passive.outcome(WrId::receive(0)).await, Outcome::Received { len: MESSAGE });
    assert_eq!(passive.read_slot(0), pattern(9, MESSAGE));
}

#[tokio::test]
async fn sends_after_the_end_are_flushed() {
    let (mut active, _passive) = pair().await;
    active.endpoint.disconnect();
    while active.completed().iter().all(|done| done.wr_id != WrId::receive(RECEIVES - 1)) {
        tokio::task::yield_now().await;
    }
    // Devices may refuse the request, or take it and flush it.
    if active.endpoint.post_sends(&[active.request(1, 0, 1, SendOp::Send)]).is_ok() {
        assert_eq!(active.send_outcome(WrId::send(1)).await, Outcome::Failed(FailureStatus::Flushed));
    }
}

// --- Local bugs ----------------------------------------------------------------------------------------------------

#[tokio::test]
#[should_panic(expected = "range")]
async fn filling_beyond_a_region_is_a_bug() {
    let (mut active, _passive) = pair().await;
    active.stage(WINDOW - 1, &[0; 2]);
}

#[tokio::test]
#[should_panic(expected = "range")]
async fn copying_from_beyond_a_region_is_a_bug() {
    let (active, _passive) = pair().await;
    active.read_window(WINDOW as usize..WINDOW as usize + 1);
}
