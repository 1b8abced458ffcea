//! Completions, and the events that announce them.

use std::future::poll_fn;

use valkey_rdma_proto::work::{Outcome, SendOp, WrId};

use super::super::device_peer::{Peer, RECEIVES, bounded, pair};

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
