//! Messages, from one side to the receives of the other.

use valkey_rdma_proto::work::{FailureStatus, Outcome, SendOp, WrId};

use super::super::device_peer::{MESSAGE, RECEIVES, pair};
use super::{announce_to, pattern};

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
async fn an_immediate_comes_with_its_message() {
    let (mut active, mut passive) = pair().await;
    active.endpoint.copy_in(active.staging.id, 8, &pattern(1, MESSAGE));
    active.post(&[active.request(1, 8, MESSAGE, SendOp::SendWithImm { imm: 0x0102_0304 })]);
    assert_eq!(active.outcome(WrId::send(1)).await, Outcome::Sent);
    let expected = Outcome::ReceivedWithImm { len: MESSAGE, imm: 0x0102_0304 };
    assert_eq!(passive.outcome(WrId::receive(0)).await, expected);
    assert_eq!(passive.read_slot(0), pattern(1, MESSAGE));
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
