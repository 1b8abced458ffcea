//! Waiting for completion events on a thread, without a task.

use std::future::poll_fn;
use std::task::{Context, Poll};

use valkey_rdma_proto::work::{Outcome, WrId};
use valkey_rdma_transport::device::{CmEvent, Interrupt};

use super::super::device_peer::{Peer, bounded, pair};
use super::rally::Rally;

/// Runs `work` on a thread while this one runs what the device does in tasks.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    bounded(tokio::task::spawn_blocking(work)).await.expect("no panic")
}

/// Blocks until an event was taken.
fn wait(peer: &mut Peer, interrupt: &Interrupt) {
    while !peer.endpoint.wait_completion_event(interrupt).expect("waits") {}
}

#[tokio::test]
async fn threads_and_tasks_take_turns_in_waiting() {
    let (mut active, mut passive) = pair().await;
    let interrupt = Interrupt::new().expect("descriptors");
    for sequence in 0..4 {
        passive.endpoint.arm().expect("arms");
        active.send(sequence, &[1]);
        if sequence % 2 == 0 {
            let interrupt = interrupt.clone();
            passive = on_thread(move || {
                wait(&mut passive, &interrupt);
                passive
            })
            .await;
        } else {
            bounded(poll_fn(|cx| passive.endpoint.poll_completion_event(cx))).await.expect("an event");
        }
        assert_eq!(passive.completed().len(), 1);
        assert_eq!(active.outcome(WrId::send(sequence)).await, Outcome::Sent);
    }
    assert!(passive.is_quiet().await, "one event for one arming");
}

#[tokio::test]
async fn an_interrupt_ends_the_wait_before_it_begins_or_later() {
    let (_active, mut passive) = pair().await;
    let interrupt = Interrupt::new().expect("descriptors");
    let raising = interrupt.clone();
    passive.endpoint.arm().expect("arms");
    interrupt.raise();
    let (first, is_over) = tokio::sync::oneshot::channel();
    let waiting = on_thread(move || {
        let before = passive.endpoint.wait_completion_event(&interrupt).expect("waits");
        first.send(()).expect("the test waits");
        (before, passive.endpoint.wait_completion_event(&interrupt).expect("waits"))
    });
    let raising = async {
        is_over.await.expect("it has ended");
        raising.raise();
    };
    let (taken, ()) = tokio::join!(waiting, raising);
    assert_eq!(taken, (false, false));
}

#[tokio::test]
async fn a_peer_that_leaves_wakes_the_thread() {
    let (active, mut passive) = pair().await;
    let interrupt = Interrupt::new().expect("descriptors");
    passive.endpoint.arm().expect("arms");
    let waiting = on_thread(move || {
        let mut cx = Context::from_waker(interrupt.waker());
        loop {
            if let Poll::Ready(event) = passive.endpoint.poll_cm_event(&mut cx) {
                return event.expect("an event");
            }
            passive.endpoint.wait_completion_event(&interrupt).expect("waits");
        }
    });
    let (event, ()) = tokio::join!(waiting, async { drop(active) });
    assert_eq!(event, CmEvent::Disconnected);
}

/// Answers every message with one, `rounds` times.
fn rally(peer: Peer, rounds: u32, serves: bool) -> Peer {
    let interrupt = Interrupt::new().expect("descriptors");
    let (mut rally, mut armed) = (Rally::new(peer, rounds, serves), false);
    while rally.goes_on() {
        if !armed {
            rally.peer.endpoint.arm().expect("arms");
            armed = true;
        }
        if !rally.take() {
            armed = !rally.peer.endpoint.wait_completion_event(&interrupt).expect("waits");
        }
    }
    rally.end()
}

#[tokio::test]
async fn no_wake_up_is_lost_between_threads() {
    const ROUNDS: u32 = 1000;
    let (active, passive) = pair().await;
    let serving = on_thread(move || rally(active, ROUNDS, true));
    let answering = on_thread(move || rally(passive, ROUNDS, false));
    drop(tokio::join!(serving, answering));
}
