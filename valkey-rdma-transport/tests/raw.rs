//! Queue pairs as applications use them, on the device that `VALKEY_RDMA_TEST_DEVICE` names.

#![cfg(feature = "emulated")]

mod device_peer;

use std::time::Duration;

use device_peer::{any_port, bounded, device};
use valkey_rdma_transport::raw::{
    Access, Completion, DeviceOptions, FailureStatus, Interrupt, Listener, Outcome, QueuePair, Region,
    RemoteRegion, Request,
};
use valkey_rdma_transport::{CloseReason, Polling, TransportError};

fn options() -> DeviceOptions {
    DeviceOptions { send_depth: 64, receive_depth: 64, read_depth: 4, ..DeviceOptions::default() }
}

async fn pair() -> (QueuePair, QueuePair) {
    let mut listener = Listener::bind(device(), any_port(), &options()).await.expect("listens");
    let mut active = QueuePair::open(device(), listener.local_addr(), &options()).await.expect("a path");
    let accepting = async {
        let mut passive = listener.incoming().await.expect("a request");
        passive.establish().await.expect("accepts");
        passive
    };
    let (connected, passive) = bounded(async { tokio::join!(active.establish(), accepting) }).await;
    connected.expect("connects");
    (active, passive)
}

#[tokio::test]
async fn a_message_brings_address_and_key_of_memory_that_is_then_written_and_read() {
    let (mut active, mut passive) = pair().await;
    let shared = passive.register(4096, Access::RemoteReadWrite).expect("memory");
    let card = passive.register(RemoteRegion::BYTES as u32, Access::Local).expect("memory");
    let inbox = active.register(64, Access::Local).expect("memory");
    let (there, back) = (
        active.register(4096, Access::Local).expect("memory"),
        active.register(4096, Access::Local).expect("memory"),
    );

    active.post_recv(1, inbox).expect("posts");
    passive.copy_in(card, &shared.remote().to_bytes());
    passive.post_send(1, card).expect("posts");
    let received = bounded(active.wait_for(1)).await.expect("a message");
    assert_eq!(received.received_len(), Some(16));
    let remote = RemoteRegion::from_bytes(&active.copy_out(inbox)).expect("address and key");
    assert_eq!(remote, shared.remote());

    let bytes = (0..4096).map(|n| (n * 7) as u8).collect::<Vec<_>>();
    active.copy_in(there, &bytes);
    active.post_write(2, there, remote).expect("posts");
    active.post_read(3, back, remote).expect("posts");
    bounded(active.wait_for(3)).await.expect("read");
    assert_eq!(active.copy_out(back), bytes);
    assert_eq!(passive.copy_out(shared), bytes);
    assert_eq!(bounded(active.wait()).await.expect("kept"), Completion { id: 2, outcome: Outcome::Sent });
}

#[tokio::test]
async fn a_chain_goes_out_with_one_doorbell_and_its_last_completion_stands_for_all() {
    let (mut active, mut passive) = pair().await;
    let window = passive.register(64, Access::RemoteWrite).expect("memory");
    let bytes = active.register(64, Access::Local).expect("memory");
    passive.post_recv(9, window).expect("posts");
    active.copy_in(bytes, b"one two ");
    let half = |n: u32| bytes.slice(n * 4..n * 4 + 4);
    let chain = [
        Request::write(1, half(0), window.remote()).unsignalled(),
        Request::write(2, half(1), window.remote().from_offset(4)).with_imm(8),
    ];
    active.post_chain(chain).expect("posts");
    assert_eq!(bounded(active.wait()).await.expect("done").id, 2);
    let announced = bounded(passive.wait()).await.expect("announced");
    assert_eq!((announced.id, announced.imm(), announced.received_len()), (9, Some(8), Some(4)));
    assert_eq!(passive.copy_out(window.slice(0..8)), b"one two ");
    assert_eq!(active.counters().doorbells, 1);
}

#[tokio::test]
async fn the_error_is_that_of_the_request_that_failed() {
    let (mut active, mut passive) = pair().await;
    let closed = passive.register(64, Access::Local).expect("memory");
    let bytes = active.register(64, Access::Local).expect("memory");
    active.post_recv(1, bytes).expect("posts");
    active.post_write(2, bytes, closed.remote()).expect("posts");
    // The receive is flushed by that, and says why.
    let error = bounded(active.wait_for(1)).await.expect_err("flushed");
    let status = FailureStatus::RemoteAccess;
    assert!(matches!(error, TransportError::WorkRequest { id: 2, status: s } if s == status), "{error:?}");
    assert!(error.to_string().contains("work request 2 failed"), "{error}");
}

/// Two ends: the active one waits for two messages, which the passive one sends from its outbox.
struct Messages {
    active: QueuePair,
    passive: QueuePair,
    inbox: Region,
    outbox: Region,
}

impl Messages {
    async fn towards(polling: Polling) -> Self {
        let (mut active, mut passive) = pair().await;
        active.set_polling(polling, Duration::from_micros(50));
        let inbox = active.register(64, Access::Local).expect("memory");
        let outbox = passive.register(64, Access::Local).expect("memory");
        active.post_recvs([(1, inbox.slice(0..32)), (2, inbox.slice(32..64))]).expect("posts");
        Self { active, passive, inbox, outbox }
    }
}

#[tokio::test]
async fn a_peer_that_leaves_ends_the_waiting_after_what_it_said() {
    for polling in [Polling::Event, Polling::Busy, Polling::Adaptive] {
        let Messages { mut active, mut passive, inbox, outbox } = Messages::towards(polling).await;
        passive.copy_in(outbox, b"the last word");
        passive.post_send(1, outbox.slice(0..13)).expect("posts");
        bounded(passive.wait()).await.expect("acknowledged");
        drop(passive);
        assert_eq!(bounded(active.wait()).await.expect("the last word").id, 1);
        assert_eq!(active.copy_out(inbox.slice(0..13)), b"the last word");
        for _ in 0..2 {
            let error = bounded(active.wait()).await.expect_err("the end");
            assert!(matches!(error, TransportError::Lost(CloseReason::Peer)), "{error:?}");
        }
        bounded(active.closed()).await.expect("it is");
    }
}

#[tokio::test]
async fn a_thread_waits_for_messages_an_interrupt_and_the_end() {
    for polling in [Polling::Event, Polling::Busy, Polling::Adaptive] {
        let Messages { mut active, mut passive, outbox, .. } = Messages::towards(polling).await;
        let interrupt = Interrupt::new().expect("descriptors");
        let raising = interrupt.clone();
        let (first, mut steps) = tokio::sync::mpsc::unbounded_channel();
        let thread = tokio::task::spawn_blocking(move || {
            for _ in 0..2 {
                first.send(active.blocking_wait(&interrupt).expect("waits")).expect("the test waits");
            }
            let error = active.blocking_wait(&interrupt).expect_err("the end");
            assert!(matches!(error, TransportError::Lost(CloseReason::Peer)), "{error:?}");
            active
        });
        passive.post_send(1, outbox.slice(0..13)).expect("posts");
        bounded(passive.wait()).await.expect("acknowledged");
        let received = bounded(steps.recv()).await.flatten().expect("a message");
        assert_eq!((received.id, received.received_len()), (1, Some(13)));
        raising.raise();
        assert_eq!(bounded(steps.recv()).await, Some(None), "interrupted");
        drop(passive);
        let mut active = bounded(thread).await.expect("no panic");
        let error = bounded(active.wait()).await.expect_err("the end");
        assert!(matches!(error, TransportError::Lost(CloseReason::Peer)), "{error:?}");
    }
}

#[tokio::test]
async fn one_waits_for_the_other_to_leave() {
    let (active, mut passive) = pair().await;
    let leaving = tokio::spawn(async move { drop(active) });
    bounded(passive.closed()).await.expect("it leaves");
    leaving.await.expect("left");
}

#[tokio::test]
async fn connecting_to_nobody_is_refused_and_a_dropped_request_rejected() {
    let mut listener = Listener::bind(device(), any_port(), &options()).await.expect("listens");
    let mut active = QueuePair::open(device(), listener.local_addr(), &options()).await.expect("a path");
    let rejecting = async { drop(listener.incoming().await.expect("a request")) };
    let (outcome, ()) = bounded(async { tokio::join!(active.establish(), rejecting) }).await;
    let error = outcome.expect_err("rejected");
    assert!(matches!(error, TransportError::Rejected { .. }), "{error:?}");

    let addr = listener.local_addr();
    drop(listener);
    let mut active = QueuePair::open(device(), addr, &options()).await.expect("a path");
    let error = bounded(active.establish()).await.expect_err("refused");
    assert!(matches!(error, TransportError::Refused { .. }), "{error:?}");
}

#[tokio::test]
async fn a_full_queue_is_an_error() {
    let (mut active, _passive) = pair().await;
    let inbox = active.register(64, Access::Local).expect("memory");
    // Devices may have room for more than they grant.
    let depth = u64::from(active.limits().receive_depth);
    let (posted, error) = (0..8 * depth)
        .find_map(|id| active.post_recv(id, inbox).err().map(|error| (id, error)))
        .expect("full in the end");
    assert!(posted >= depth, "{posted} of {depth} granted");
    assert!(matches!(error, TransportError::Device { call: "ibv_post_recv", .. }), "{error:?}");
}

#[tokio::test]
async fn a_batch_refused_in_part_receives_and_ends() {
    let (mut active, mut passive) = pair().await;
    let inbox = active.register(64, Access::Local).expect("memory");
    let outbox = passive.register(64, Access::Local).expect("memory");
    // Devices may have room for more than they grant.
    let too_many = 8 * u64::from(active.limits().receive_depth);
    active.post_recvs((0..too_many).map(|id| (id, inbox.into()))).expect_err("more than there is room for");
    passive.post_send(1, outbox).expect("posts");
    bounded(passive.wait()).await.expect("acknowledged");
    drop(passive);
    assert_eq!(bounded(active.wait()).await.expect("received").id, 0);
    let error = bounded(active.wait()).await.expect_err("the end");
    assert!(matches!(error, TransportError::Lost(CloseReason::Peer)), "{error:?}");
}

#[tokio::test]
#[should_panic(expected = "another queue pair")]
async fn regions_are_not_exchanged_between_queue_pairs() {
    let (mut active, mut passive) = pair().await;
    let foreign = passive.register(64, Access::Local).expect("memory");
    let _ = active.post_recv(1, foreign);
}

#[tokio::test]
#[should_panic(expected = "outside of a region")]
async fn a_slice_lies_inside_of_its_region() {
    let (mut active, _passive) = pair().await;
    let region = active.register(64, Access::Local).expect("memory");
    region.slice(60..65);
}

#[tokio::test]
async fn looking_and_sleeping_are_counted() {
    let (mut active, mut passive) = pair().await;
    let (inbox, outbox) = (
        active.register(64, Access::Local).expect("memory"),
        passive.register(64, Access::Local).expect("memory"),
    );
    for (id, polling) in [Polling::Event, Polling::Busy].into_iter().enumerate() {
        let id = id as u64;
        active.set_polling(polling, Duration::ZERO);
        active.post_recv(id, inbox).expect("posts");
        let before = active.counters();
        let sending = async {
            // After the other has looked once.
            tokio::task::yield_now().await;
            passive.post_send(id, outbox).expect("posts");
            passive.wait().await.expect("sent");
        };
        let (received, ()) = bounded(async { tokio::join!(active.wait(), sending) }).await;
        assert_eq!(received.expect("received").id, id);
        let after = active.counters();
        match polling {
            Polling::Busy => {
                assert!(after.spins > before.spins && after.sleeps == before.sleeps, "{after:?}")
            }
            _ => assert!(after.sleeps > before.sleeps && after.spins == before.spins, "{after:?}"),
        }
    }
}
