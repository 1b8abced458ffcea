//! Connections that share completion queues, on kernel verbs. That they keep the device contract is what its suite shows
//! with `VALKEY_RDMA_TEST_SHARE` set, which changes nothing here. Needs an RDMA device, see `verbs_device`.
#![cfg(feature = "verbs")]

use std::future::poll_fn;

use device_peer::{MESSAGE, Peer, any_port, bounded, device, listen};
use tokio::runtime::Handle;
use valkey_rdma_proto::work::{Outcome, WrId};
use valkey_rdma_transport::TransportError;
use valkey_rdma_transport::device::{
    self as devices, CmEvent, DeviceListener, DeviceOptions, SharedCq, SharedCqError,
};

mod device_peer;

/// With a completion queue of its own.
fn options() -> DeviceOptions {
    DeviceOptions { shared_cq: None, ..device_peer::options() }
}

/// With those of a new group.
fn shared() -> DeviceOptions {
    DeviceOptions { shared_cq: Some(SharedCq::new()), ..options() }
}

/// How many queues are shared: each has a task, and the runtime of such a test has no others.
fn queues() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Connects: the active side with these options, the passive side with a completion queue of its own.
async fn connect(listener: &mut dyn DeviceListener, active: &DeviceOptions) -> (Peer, Peer) {
    let opened = bounded(devices::open(device(), listener.local_addr(), active)).await;
    let mut active = Peer::new(opened.expect("a path"));
    active.endpoint.establish().expect("asks");
    let request = bounded(poll_fn(|cx| listener.poll_request(cx))).await.expect("a request");
    let mut passive = Peer::new(request.accept(&options()).expect("an endpoint"));
    passive.endpoint.establish().expect("accepts");
    assert_eq!(active.cm_event().await, CmEvent::Established);
    assert_eq!(passive.cm_event().await, CmEvent::Established);
    (active, passive)
}

/// A message there and another one back, as the `round`th one.
async fn round_trip(active: &mut Peer, passive: &mut Peer, round: u32, mark: u8) {
    let sequence = u64::from(round);
    active.send(sequence, &[mark; MESSAGE as usize]);
    assert_eq!(active.outcome(WrId::send(sequence)).await, Outcome::Sent);
    assert_eq!(passive.outcome(WrId::receive(round)).await, Outcome::Received { len: MESSAGE });
    passive.send(sequence, &[!mark; MESSAGE as usize]);
    assert_eq!(passive.outcome(WrId::send(sequence)).await, Outcome::Sent);
    assert_eq!(active.outcome(WrId::receive(round)).await, Outcome::Received { len: MESSAGE });
    assert_eq!(active.read_slot(round), [!mark; MESSAGE as usize]);
}

/// 80 connections are more than one queue takes; and whatever becomes of some, the others have their own completions.
#[tokio::test]
#[ignore = "needs an RDMA device"]
async fn members_come_and_go_and_each_has_its_own_completions() {
    let mut listener = listen().await;
    let shared = shared();
    let mut pairs = Vec::new();
    for _ in 0..80 {
        pairs.push(connect(listener.as_mut(), &shared).await);
    }
    assert_eq!(queues(), 2, "64 connections, and 16");
    for (mark, (active, passive)) in pairs.iter_mut().enumerate() {
        round_trip(active, passive, 0, mark as u8).await;
    }
    // Every second one ends with work under way, half of them by either side.
    let mut kept = Vec::new();
    for (number, (mut active, mut passive)) in pairs.into_iter().enumerate() {
        match number % 4 {
            1 => active.send(1, b"on the way"),
            3 => passive.send(1, b"on the way"),
            _ => {
                kept.push((active, passive));
                continue;
            }
        }
        if number % 8 < 4 { drop((active, passive)) } else { drop((passive, active)) }
    }
    // Others take their places, with queue pair numbers that may be theirs.
    let mut others = Vec::new();
    for _ in 0..80 {
        let (mut active, mut passive) = connect(listener.as_mut(), &shared).await;
        round_trip(&mut active, &mut passive, 0, 0xa5).await;
        others.push((active, passive));
    }
    for (mark, (active, passive)) in kept.iter_mut().enumerate() {
        round_trip(active, passive, 1, mark as u8).await;
    }
    assert_eq!(queues(), 2, "120 connections: the room that became free was used again");
}

#[tokio::test]
#[ignore = "needs an RDMA device with two interrupts"]
async fn connections_announced_by_another_interrupt_have_another_queue() {
    let mut listener = listen().await;
    let shared = shared();
    let other = DeviceOptions { completion_vector: 1, ..shared.clone() };
    let mut pairs = Vec::new();
    for options in [&shared, &other, &shared, &other] {
        pairs.push(connect(listener.as_mut(), options).await);
    }
    assert_eq!(queues(), 2);
    for (active, passive) in &mut pairs {
        round_trip(active, passive, 0, 0x5a).await;
    }
}

#[tokio::test]
#[ignore = "needs an RDMA device"]
async fn a_connection_as_deep_as_the_device_s_queues_has_one_for_itself() {
    let mut listener = listen().await;
    let error =
        devices::open(device(), any_port(), &DeviceOptions { send_depth: 1 << 24, ..options() }).await;
    let Err(TransportError::QueueDepth { limit, .. }) = error else { panic!("no such depth") };
    let depth = limit.min(1 << 14);
    let deep = DeviceOptions { send_depth: depth - 64, receive_depth: depth - 64, ..shared() };
    let mut first = connect(listener.as_mut(), &deep).await;
    let mut second = connect(listener.as_mut(), &deep).await;
    // The completion queues of an adapter may be far deeper.
    if first.0.endpoint.device().software {
        assert_eq!(first.0.endpoint.limits().cq_members, 1);
        assert_eq!(queues(), 0, "a queue that is not shared needs no task");
    }
    for round in 0..3 {
        round_trip(&mut first.0, &mut first.1, round, 1).await;
        round_trip(&mut second.0, &mut second.1, round, 2).await;
    }
}

/// The first connection of a queue is made in a runtime that ends before the others.
#[tokio::test]
#[ignore = "needs an RDMA device"]
async fn members_learn_that_the_runtime_which_served_them_has_ended() {
    let mut listener = listen().await;
    let shared = shared();
    let (options, address) = (shared.clone(), listener.local_addr());
    let (sender, first) = tokio::sync::oneshot::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let elsewhere = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let open = devices::open(device(), address, &options);
        let opened = runtime.block_on(open).expect("a path");
        sender.send(opened).map_err(drop).expect("somebody waits");
        ended.recv().expect("told to end");
    });
    let first = bounded(first).await.expect("an endpoint");
    let (mut active, mut passive) = connect(listener.as_mut(), &shared).await;
    end.send(()).expect("it waits");
    elsewhere.join().expect("no panic");
    let event = bounded(poll_fn(|cx| active.endpoint.poll_completion_event(cx))).await;
    let error = event.expect_err("nobody waits for events any more");
    assert!(matches!(error, TransportError::SharedQueue { cause: SharedCqError::Runtime }), "{error:?}");
    // Whoever comes now is served by a runtime that is there.
    drop((active, first));
    passive.endpoint.disconnect();
    let (mut active, mut passive) = connect(listener.as_mut(), &shared).await;
    round_trip(&mut active, &mut passive, 0, 7).await;
}
