//! Writes into the other side's memory, and what it has not opened.

use valkey_rdma_proto::work::{FailureStatus, Outcome, SendOp, SendRequest, Slice, WrId};
use valkey_rdma_transport::device::Access;

use super::super::device_peer::{MESSAGE, Peer, WINDOW, options, pair};
use super::{announce_to, pattern, write_to};

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
