//! Queues that overflow.

use std::future::poll_fn;

use valkey_rdma_proto::work::{Outcome, SendOp, WrId};
use valkey_rdma_transport::TransportError;

use super::device_peer::{MESSAGE, RECEIVES, bounded, options};
use super::{Pair, links, pair};

#[tokio::test]
async fn a_full_send_queue_takes_no_more() {
    for link in links() {
        let Pair { mut active, passive: _passive, far, near: _near } = pair(&link, |_, _| {}).await;
        far.stall_receivers(true);
        let depth = options().send_depth;
        let chain: Vec<_> = (0..depth).map(|n| active.request(n.into(), 0, 1, SendOp::Send)).collect();
        active.post(&chain);
        let error = active.endpoint.post_sends(&chain[..1]).expect_err("the queue is full");
        assert!(matches!(error, TransportError::Device { call: "ibv_post_send", .. }), "{link}: {error:?}");
        far.stall_receivers(false);
    }
}

#[tokio::test]
async fn a_full_receive_queue_takes_no_more() {
    for link in links() {
        let mut pair = pair(&link, |_, _| {}).await;
        pair.passive.post_receives(RECEIVES..options().receive_depth);
        let local = valkey_rdma_proto::work::Slice { region: pair.passive.slots.id, offset: 0, len: MESSAGE };
        let one_more = valkey_rdma_proto::work::ReceiveRequest { wr_id: WrId::receive(0), local };
        let error = pair.passive.endpoint.post_receives(&[one_more]).expect_err("the queue is full");
        assert!(matches!(error, TransportError::Device { call: "ibv_post_recv", .. }), "{link}: {error:?}");
    }
}

#[tokio::test]
async fn a_completion_queue_that_is_not_polled_overflows_and_the_queue_pair_fails() {
    for link in links() {
        let mut pair = pair(&link, |_, _| {}).await;
        let room = options().send_depth + options().receive_depth;
        pair.passive.endpoint.arm().expect("arms");
        // The receives are posted again, but what completed is never taken.
        for sequence in 0..=room {
            pair.active.send(sequence.into(), &[0]);
            if sequence < room {
                assert_eq!(pair.active.outcome(WrId::send(sequence.into())).await, Outcome::Sent);
            }
            let slot = sequence % RECEIVES;
            pair.passive.post_receives(slot..slot + 1);
        }
        let overrun = async {
            let mut found = Vec::new();
            loop {
                if let Err(error) = pair.passive.endpoint.poll(&mut found, 0) {
                    break error;
                }
                tokio::task::yield_now().await;
            }
        };
        let error = bounded(overrun).await;
        assert!(matches!(error, TransportError::Device { call: "ibv_poll_cq", .. }), "{link}: {error:?}");
        // A program that sleeps hears of it too.
        bounded(poll_fn(|cx| pair.passive.endpoint.poll_completion_event(cx))).await.expect("an event");
    }
}
