//! How connections end, and what becomes of what was under way.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::task::Poll;

use valkey_rdma_proto::work::{FailureStatus, Outcome, SendOp, WrId};
use valkey_rdma_transport::TransportError;
use valkey_rdma_transport::device::CmEvent;

use super::super::device_peer::{MESSAGE, RECEIVES, accept, bounded, connect, listen, open, pair};
use super::pattern;

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
