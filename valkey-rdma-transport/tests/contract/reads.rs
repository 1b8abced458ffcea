//! Reads from the other side's memory, and what it has not opened.

use valkey_rdma_proto::work::{FailureStatus, Outcome, Region, SendOp, SendRequest, Slice, WrId};
use valkey_rdma_transport::device::{Access, DeviceOptions};
use valkey_rdma_transport::{BufferPool, TransportError};

use super::super::device_peer::{MESSAGE, Peer, RECEIVES, WINDOW, options, pair, pair_with};
use super::{pattern, write_to};

const DEPTH: u8 = 4;

fn reading(read_depth: u8) -> DeviceOptions {
    DeviceOptions { read_depth, ..options() }
}

/// A connected pair, and memory of the passive side that the active one may read. It holds `pattern(7, WINDOW)`.
async fn readable() -> (Peer, Peer, Region) {
    let (active, mut passive) = pair_with(&reading(DEPTH), &reading(DEPTH)).await;
    let shelf = passive.endpoint.register(WINDOW, Access::RemoteRead).expect("memory");
    passive.endpoint.copy_in(shelf.id, 0, &pattern(7, WINDOW));
    (active, passive, shelf)
}

fn read_from(shelf: Region, offset: u32) -> SendOp {
    SendOp::Read { addr: shelf.addr + u64::from(offset), rkey: shelf.rkey }
}

fn staged(peer: &Peer, offset: u32, len: u32) -> Vec<u8> {
    let (start, mut bytes) = (offset as usize, Vec::with_capacity(len as usize));
    peer.endpoint.read_local(peer.staging.id, start..start + len as usize, &mut bytes);
    bytes
}

#[tokio::test]
async fn a_read_brings_the_bytes_and_the_other_side_notices_nothing() {
    let (mut active, mut passive, shelf) = readable().await;
    active.post(&[active.request(1, 100, 64, read_from(shelf, 32))]);
    assert_eq!(active.outcome(WrId::send(1)).await, Outcome::Sent);
    assert_eq!(staged(&active, 100, 64), pattern(7, WINDOW)[32..96]);
    assert_eq!(staged(&active, 164, 8), [0; 8]);
    assert_eq!(passive.completed(), []);
}

#[tokio::test]
async fn a_large_read_crosses_packets_unharmed() {
    let (mut active, _passive, shelf) = readable().await;
    active.post(&[active.request(1, 0, WINDOW, read_from(shelf, 0))]);
    assert_eq!(active.outcome(WrId::send(1)).await, Outcome::Sent);
    assert!(staged(&active, 0, WINDOW) == pattern(7, WINDOW), "bytes differ");
}

#[tokio::test]
async fn both_sides_read_at_once() {
    let (mut active, mut passive, shelf) = readable().await;
    let back = active.endpoint.register(WINDOW, Access::RemoteReadWrite).expect("memory");
    active.endpoint.copy_in(back.id, 0, &pattern(8, WINDOW));
    active.post(&[active.request(1, 0, WINDOW, read_from(shelf, 0))]);
    passive.post(&[passive.request(1, 0, WINDOW, read_from(back, 0))]);
    assert_eq!(active.outcome(WrId::send(1)).await, Outcome::Sent);
    assert_eq!(passive.outcome(WrId::send(1)).await, Outcome::Sent);
    assert!(staged(&active, 0, WINDOW) == pattern(7, WINDOW), "bytes differ");
    assert!(staged(&passive, 0, WINDOW) == pattern(8, WINDOW), "bytes differ");
}

#[tokio::test]
async fn reads_beyond_the_depth_wait_for_each_other() {
    let (mut active, _passive, shelf) = readable().await;
    let count = u32::from(DEPTH) * 4;
    let chain = (0..count).map(|n| active.request(n.into(), n * 512, 512, read_from(shelf, n * 512)));
    let chain = chain.collect::<Vec<_>>();
    active.post(&chain);
    for n in 0..count {
        assert_eq!(active.outcome(WrId::send(n.into())).await, Outcome::Sent);
    }
    assert_eq!(staged(&active, 0, count * 512), pattern(7, WINDOW)[..count as usize * 512]);
}

#[tokio::test]
async fn a_read_sees_the_write_before_it_and_a_message_comes_after_both() {
    let (mut active, mut passive) = pair_with(&reading(DEPTH), &reading(DEPTH)).await;
    let board = passive.endpoint.register(WINDOW, Access::RemoteReadWrite).expect("memory");
    active.stage(0, &pattern(9, 4096));
    let write = SendOp::Write { addr: board.addr, rkey: board.rkey };
    let mut chain = [
        active.request(1, 0, 4096, write),
        active.request(2, 8192, 4096, read_from(board, 0)),
        active.request(3, 0, MESSAGE, SendOp::Send),
        active.request(4, 16384, 64, read_from(board, 64)),
    ];
    chain[0].signalled = false;
    chain[1].signalled = false;
    active.post(&chain);
    assert_eq!(active.outcome(WrId::send(3)).await, Outcome::Sent);
    assert_eq!(active.outcome(WrId::send(4)).await, Outcome::Sent);
    assert_eq!(staged(&active, 8192, 4096), pattern(9, 4096));
    assert_eq!(staged(&active, 16384, 64), pattern(9, 4096)[64..128]);
    assert_eq!(passive.outcome(WrId::receive(0)).await, Outcome::Received { len: MESSAGE });
}

#[tokio::test]
async fn a_read_waits_behind_a_message_that_finds_no_receive() {
    let (mut active, mut passive, shelf) = readable().await;
    let chain = (0..RECEIVES + 1).map(|n| active.request(n.into(), 0, MESSAGE, SendOp::Send));
    let chain = chain.chain([active.request(99, 0, 64, read_from(shelf, 0))]).collect::<Vec<_>>();
    active.post(&chain);
    for n in 0..RECEIVES {
        assert_eq!(active.outcome(WrId::send(n.into())).await, Outcome::Sent);
    }
    passive.post_receives(RECEIVES..RECEIVES + 1);
    assert_eq!(active.outcome(WrId::send(RECEIVES.into())).await, Outcome::Sent);
    assert_eq!(active.outcome(WrId::send(99)).await, Outcome::Sent);
    assert_eq!(staged(&active, 0, 64), pattern(7, 64));
}

#[tokio::test]
async fn a_read_of_nothing_names_no_memory() {
    let (mut active, _passive, shelf) = readable().await;
    let nowhere = SendOp::Read { addr: 0, rkey: shelf.rkey ^ 0x5555 };
    active.post(&[active.request(1, 0, 0, nowhere)]);
    assert_eq!(active.outcome(WrId::send(1)).await, Outcome::Sent);
}

async fn refused_read(op: impl FnOnce(&mut Peer, Region) -> SendOp) {
    let (mut active, mut passive, shelf) = readable().await;
    let op = op(&mut passive, shelf);
    let mut chain = [active.request(1, 0, 64, op), active.request(2, 0, MESSAGE, SendOp::Send)];
    chain[0].signalled = false;
    active.post(&chain);
    assert_eq!(active.send_outcome(WrId::send(1)).await, Outcome::Failed(FailureStatus::RemoteAccess));
    assert_eq!(active.send_outcome(WrId::send(2)).await, Outcome::Failed(FailureStatus::Flushed));
    assert_eq!(staged(&active, 0, 64), [0; 64], "nothing was read");
}

#[tokio::test]
async fn a_read_beyond_the_region_is_refused() {
    refused_read(|_, shelf| read_from(shelf, WINDOW - 63)).await;
}

#[tokio::test]
async fn a_read_below_the_region_is_refused() {
    refused_read(|_, shelf| SendOp::Read { addr: shelf.addr - 1, rkey: shelf.rkey }).await;
}

#[tokio::test]
async fn a_read_with_a_wrong_key_is_refused() {
    refused_read(|_, shelf| SendOp::Read { addr: shelf.addr, rkey: shelf.rkey ^ 0x5555 }).await;
}

#[tokio::test]
async fn a_read_of_memory_that_may_only_be_written_is_refused() {
    refused_read(|passive, _| read_from(passive.window, 0)).await;
}

#[tokio::test]
async fn a_read_of_memory_without_remote_access_is_refused() {
    refused_read(|passive, _| read_from(passive.staging, 0)).await;
}

#[tokio::test]
async fn a_read_with_the_key_of_another_connection_is_refused() {
    let (_active, _passive, stranger) = readable().await;
    refused_read(|_, _| read_from(stranger, 0)).await;
}

#[tokio::test]
async fn memory_that_may_only_be_read_is_not_written() {
    let (mut active, passive, shelf) = readable().await;
    active.stage(0, &[0; 64]);
    let write = SendOp::Write { addr: shelf.addr, rkey: shelf.rkey };
    active.post(&[active.request(1, 0, 64, write)]);
    assert_eq!(active.send_outcome(WrId::send(1)).await, Outcome::Failed(FailureStatus::RemoteAccess));
    let mut bytes = Vec::with_capacity(64);
    passive.endpoint.read_local(shelf.id, 0..64, &mut bytes);
    assert_eq!(bytes, pattern(7, 64));
}

#[tokio::test]
async fn what_was_read_before_a_refused_request_is_there() {
    let (mut active, passive, shelf) = readable().await;
    active.post(&[
        active.request(1, 0, 4096, read_from(shelf, 0)),
        active.request(2, 8192, 64, write_to(&passive, u64::from(WINDOW))),
    ]);
    assert_eq!(active.send_outcome(WrId::send(1)).await, Outcome::Sent);
    assert_eq!(active.send_outcome(WrId::send(2)).await, Outcome::Failed(FailureStatus::RemoteAccess));
    assert_eq!(staged(&active, 0, 4096), pattern(7, 4096));
}

#[tokio::test]
async fn a_read_goes_only_into_memory_that_the_device_may_write() {
    let (mut active, _passive, shelf) = readable().await;
    let local = Slice { region: active.staging.id, offset: WINDOW - 15, len: 16 };
    active.post(&[SendRequest { wr_id: WrId::send(1), local, op: read_from(shelf, 0), signalled: true }]);
    assert_eq!(active.send_outcome(WrId::send(1)).await, Outcome::Failed(FailureStatus::LocalProtection));

    let (mut active, _passive, shelf) = readable().await;
    let pool = BufferPool::new(1, 4096).expect("a usable pool");
    let lent = active.endpoint.register_send_memory(&pool.memory()).expect("memory");
    let local = Slice { region: lent.id, offset: 0, len: 16 };
    active.post(&[SendRequest { wr_id: WrId::send(1), local, op: read_from(shelf, 0), signalled: true }]);
    assert_eq!(active.send_outcome(WrId::send(1)).await, Outcome::Failed(FailureStatus::LocalProtection));
}

#[tokio::test]
async fn reads_are_off_unless_asked_for() {
    let (mut active, mut passive) = pair().await;
    let read = SendOp::Read { addr: passive.window.addr, rkey: passive.window.rkey };
    let chain = [active.request(1, 0, MESSAGE, SendOp::Send), active.request(2, 0, 64, read)];
    let error = active.endpoint.post_sends(&chain).expect_err("no reads");
    assert!(matches!(error, TransportError::ReadsOff), "{error:?}");
    for access in [Access::RemoteRead, Access::RemoteReadWrite] {
        let error = passive.endpoint.register(64, access).expect_err("no reads");
        assert!(matches!(error, TransportError::ReadsOff), "{error:?}");
    }
    // None of the chain was posted.
    assert_eq!((active.completed(), passive.completed()), (vec![], vec![]));
    active.send(1, &pattern(1, MESSAGE));
    assert_eq!(active.outcome(WrId::send(1)).await, Outcome::Sent);
}

#[tokio::test]
async fn the_smaller_wish_counts() {
    for (asked, accepted, expected) in [(4, 2, (2, 2)), (2, 8, (2, 2)), (4, 0, (1, 0)), (0, 4, (0, 1))] {
        let (active, passive) = pair_with(&reading(asked), &reading(accepted)).await;
        let depths = (active.endpoint.read_depth(), passive.endpoint.read_depth());
        assert_eq!(depths, expected, "{asked} asked, {accepted} accepted");
    }
}

/// A device that can do less settles it, as the other side does.
#[tokio::test]
async fn reads_beyond_the_device_are_asked_down_d4() {
    let (active, passive) = pair_with(&reading(u8::MAX), &reading(u8::MAX)).await;
    for side in [active, passive] {
        assert!((1..u8::MAX).contains(&side.endpoint.read_depth()));
    }
}

#[tokio::test]
async fn reads_after_the_end_are_flushed() {
    let (mut active, _passive, shelf) = readable().await;
    active.endpoint.disconnect();
    // Devices may refuse the request, or take it and flush it.
    if active.endpoint.post_sends(&[active.request(1, 0, 64, read_from(shelf, 0))]).is_ok() {
        assert_eq!(active.send_outcome(WrId::send(1)).await, Outcome::Failed(FailureStatus::Flushed));
    }
}
