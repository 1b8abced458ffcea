//! Delays, and the order they leave.

use std::time::Duration;

use tokio::time::Instant;
use valkey_rdma_proto::work::{Outcome, SendOp, WrId};
use valkey_rdma_transport::emulated::Link;

use super::device_peer::RECEIVES;
use super::{links, pair};

/// Sends messages with delays and returns when they arrive, counted from the start.
async fn arrivals(seed: u64) -> Vec<Duration> {
    let mut pair = pair(&Link::InProcess, |near, _| {
        near.delay(Duration::from_millis(1)..=Duration::from_millis(100), seed);
    })
    .await;
    let start = Instant::now();
    for byte in 0..RECEIVES as u8 {
        pair.active.stage(u32::from(byte), &[byte]);
        let request = pair.active.request(byte.into(), byte.into(), 1, SendOp::Send);
        pair.active.post(&[request]);
    }
    let mut arrivals = Vec::new();
    for slot in 0..RECEIVES {
        assert_eq!(pair.passive.outcome(WrId::receive(slot)).await, Outcome::Received { len: 1 });
        assert_eq!(pair.passive.read_slot(slot)[0], slot as u8, "nothing overtakes");
        arrivals.push(start.elapsed());
    }
    arrivals
}

#[tokio::test(start_paused = true)]
async fn delays_repeat_with_their_seed() {
    let (first, again, other) = (arrivals(1).await, arrivals(1).await, arrivals(2).await);
    assert_eq!(first, again);
    assert_ne!(first, other);
    assert!(first[0] >= Duration::from_millis(1), "{first:?}");
    assert!(first[RECEIVES as usize - 1] <= Duration::from_millis(102), "{first:?}");
}

#[tokio::test]
async fn delayed_messages_arrive_in_order() {
    for link in links() {
        let mut pair = pair(&link, |near, _| near.delay(Duration::ZERO..=Duration::from_millis(5), 42)).await;
        for byte in 0..RECEIVES as u8 {
            pair.active.stage(u32::from(byte), &[byte]);
            let request = pair.active.request(byte.into(), byte.into(), 1, SendOp::Send);
            pair.active.post(&[request]);
            if byte == RECEIVES as u8 / 2 {
                pair.near.delay(Duration::ZERO..=Duration::ZERO, 0);
            }
        }
        for slot in 0..RECEIVES {
            assert_eq!(
                pair.passive.outcome(WrId::receive(slot)).await,
                Outcome::Received { len: 1 },
                "{link}"
            );
            assert_eq!(pair.passive.read_slot(slot)[0], slot as u8, "{link}");
            assert_eq!(pair.active.outcome(WrId::send(slot.into())).await, Outcome::Sent, "{link}");
        }
    }
}
