//! Completions, and the events that announce them.

use std::future::poll_fn;

use valkey_rdma_proto::work::{Outcome, WrId};

use super::super::device_peer::{Peer, bounded, pair};
use super::rally::Rally;

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
async fn rally(peer: Peer, rounds: u32, serves: bool, keep_armed: bool) -> Peer {
    let (mut rally, mut armed) = (Rally::new(peer, rounds, serves), false);
    while rally.goes_on() {
        if !(armed && keep_armed) {
            rally.peer.endpoint.arm().expect("arms");
            armed = true;
        }
        if !rally.take() {
            bounded(poll_fn(|cx| rally.peer.endpoint.poll_completion_event(cx))).await.expect("an event");
            armed = false;
        }
    }
    rally.end()
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
