//! Memory of pools: sent from where it lies, and touched by nobody else.

use valkey_rdma_proto::work::{
    FailureStatus, Outcome, ReceiveRequest, Region, SendOp, SendRequest, Slice, WrId, WrKind,
};
use valkey_rdma_transport::BufferPool;

use super::super::device_peer::{MESSAGE, Peer, RECEIVES, WINDOW, pair};
use super::{announce_to, write_to};

const LEN: usize = 10_000;

/// A pool with two buffers, and where the device knows it.
fn lend(peer: &mut Peer) -> (BufferPool, Region) {
    let pool = BufferPool::new(2, LEN).expect("a usable pool");
    let region = peer.endpoint.register_send_memory(&pool.memory()).expect("memory");
    (pool, region)
}

fn request(sequence: u64, region: Region, offset: usize, len: usize, op: SendOp) -> SendRequest {
    let local = Slice { region: region.id, offset: offset as u32, len: len as u32 };
    SendRequest { wr_id: WrId::send(sequence), local, op, signalled: true }
}

#[tokio::test]
async fn frozen_bytes_of_a_pool_are_sent_from_where_they_lie() {
    let (mut active, mut passive) = pair().await;
    let (pool, region) = lend(&mut active);
    assert!(region.len as usize >= 2 * LEN);
    let _first = pool.try_take().expect("free");
    let mut second = pool.try_take().expect("free");
    for (place, byte) in (0..).zip(&mut second[..]) {
        *byte = (place % 251) as u8;
    }
    let value = second.freeze();
    // The second one ends where the memory does. Around the inline limit, and more than one packet.
    let start = region.len as usize - LEN.next_multiple_of(64);
    for (sequence, len) in [1, 63, 64, 65, LEN].into_iter().enumerate() {
        let at = LEN - len;
        let op = announce_to(&passive, 0, len as u32);
        active.post(&[request(sequence as u64, region, start + at, len, op)]);
        assert_eq!(active.outcome(WrId::send(sequence as u64)).await, Outcome::Sent);
        let arrived = passive.completion().await;
        assert!(matches!(arrived.wr_id.kind(), WrKind::Receive(_)), "{arrived:?}");
        assert_eq!(passive.read_window(0..len), value[at..]);
        let mut copy = Vec::with_capacity(len);
        active.endpoint.read_local(region.id, start + at..start + LEN, &mut copy);
        assert_eq!(copy, value[at..]);
    }
}

#[tokio::test]
async fn bytes_behind_a_pool_are_not_sent() {
    let (mut active, passive) = pair().await;
    let (_pool, region) = lend(&mut active);
    active.post(&[request(1, region, region.len as usize - 9, 10, write_to(&passive, 0))]);
    assert_eq!(active.send_outcome(WrId::send(1)).await, Outcome::Failed(FailureStatus::LocalProtection));
    assert!(passive.read_window(0..WINDOW as usize).iter().all(|byte| *byte == 0), "nothing was written");
}

#[tokio::test]
async fn no_peer_may_write_a_pool() {
    let (mut active, mut passive) = pair().await;
    let (pool, region) = lend(&mut passive);
    let buffer = pool.try_take().expect("free");
    let op = SendOp::Write { addr: region.addr, rkey: region.rkey };
    active.post(&[active.request(1, 0, 64, op)]);
    assert_eq!(active.send_outcome(WrId::send(1)).await, Outcome::Failed(FailureStatus::RemoteAccess));
    assert!(buffer.iter().all(|byte| *byte == 0), "nothing was written");
}

#[tokio::test]
async fn no_message_is_received_into_a_pool() {
    let (mut active, mut passive) = pair().await;
    let (pool, region) = lend(&mut passive);
    let buffer = pool.try_take().expect("free");
    // Behind the receives that there are.
    let slot = RECEIVES;
    let local = Slice { region: region.id, offset: 0, len: MESSAGE };
    passive.endpoint.post_receives(&[ReceiveRequest { wr_id: WrId::receive(slot), local }]).expect("posted");
    for sequence in 0..u64::from(RECEIVES) {
        active.send(sequence, &[7; MESSAGE as usize]);
        assert_eq!(active.outcome(WrId::send(sequence)).await, Outcome::Sent);
        passive.completion().await;
    }
    active.send(100, &[7; MESSAGE as usize]);
    let outcome = active.send_outcome(WrId::send(100)).await;
    assert_eq!(outcome, Outcome::Failed(FailureStatus::RemoteOperation));
    let failed = passive.completion().await;
    assert!(matches!(failed.outcome, Outcome::Failed(_)), "{failed:?}");
    assert!(buffer.iter().all(|byte| *byte == 0), "nothing was written");
}

#[tokio::test]
#[should_panic(expected = "only sent")]
async fn filling_a_pool_by_the_device_is_a_bug() {
    let (mut active, _passive) = pair().await;
    let (_pool, region) = lend(&mut active);
    active.endpoint.write_local(region.id, 0..1, &mut |room| room.fill(1));
}

#[tokio::test]
#[should_panic(expected = "are held")]
async fn copying_out_of_a_pool_what_may_change_is_a_bug() {
    let (mut active, _passive) = pair().await;
    let (pool, region) = lend(&mut active);
    let _buffer = pool.try_take().expect("free");
    active.endpoint.read_local(region.id, 0..1, &mut Vec::new());
}
