//! Receivers that are not ready.

use std::time::Duration;

use valkey_rdma_proto::work::{FailureStatus, Outcome, SendOp, WrId};
use valkey_rdma_transport::emulated::Device;

use super::{Pair, links, pair, use_up_receives};

#[tokio::test]
async fn a_receiver_that_grants_no_retry_fails_the_send_at_once() {
    for link in links() {
        let mut pair = pair(&link, |_, far| far.rnr_retry_count(0)).await;
        use_up_receives(&mut pair).await;
        pair.active.send(99, &[1]);
        let outcome = pair.active.send_outcome(WrId::send(99)).await;
        assert_eq!(outcome, Outcome::Failed(FailureStatus::RnrRetryExceeded), "{link}");
    }
}

#[tokio::test]
async fn a_receiver_that_is_never_ready_fails_the_send_after_the_retries_it_grants() {
    for link in links() {
        let prepare = |_: &Device, far: &Device| {
            far.rnr_retry_count(3);
            far.rnr_timer(Duration::from_millis(1));
        };
        let mut pair = pair(&link, prepare).await;
        use_up_receives(&mut pair).await;
        pair.active.send(99, &[1]);
        pair.active.send(100, &[1]);
        let outcome = pair.active.send_outcome(WrId::send(99)).await;
        assert_eq!(outcome, Outcome::Failed(FailureStatus::RnrRetryExceeded), "{link}");
        let outcome = pair.active.send_outcome(WrId::send(100)).await;
        assert_eq!(outcome, Outcome::Failed(FailureStatus::Flushed), "{link}");
    }
}

#[tokio::test]
async fn a_receiver_that_becomes_ready_in_time_gets_everything_in_order() {
    for link in links() {
        let mut pair = pair(&link, |_, far| {
            far.rnr_retry_count(1);
            far.rnr_timer(Duration::from_secs(3600));
        })
        .await;
        use_up_receives(&mut pair).await;
        // More than one is under way when the first finds no receive.
        for byte in 0..8 {
            pair.active.stage(u32::from(byte), &[byte]);
            let request = pair.active.request(byte.into(), byte.into(), 1, SendOp::Send);
            pair.active.post(&[request]);
        }
        for byte in 0..8 {
            // One by one: each makes room for one, and the next has to wait again.
            pair.passive.post_receives(u32::from(byte)..u32::from(byte) + 1);
            let outcome = pair.passive.outcome(WrId::receive(byte.into())).await;
            assert_eq!(outcome, Outcome::Received { len: 1 }, "{link}");
            assert_eq!(pair.passive.read_slot(byte.into())[0], byte, "{link}");
            assert_eq!(pair.active.outcome(WrId::send(byte.into())).await, Outcome::Sent, "{link}");
        }
    }
}

#[tokio::test]
async fn a_stalled_receiver_holds_messages_back_and_writes_pass() {
    for link in links() {
        let Pair { mut active, mut passive, far, near: _near } = pair(&link, |_, _| {}).await;
        far.stall_receivers(true);
        let op = SendOp::Write { addr: passive.window.addr, rkey: passive.window.rkey };
        active.stage(0, &[7; 8]);
        active.post(&[active.request(1, 0, 8, op), active.request(2, 0, 8, SendOp::Send)]);
        assert_eq!(active.outcome(WrId::send(1)).await, Outcome::Sent, "{link}");
        assert_eq!(passive.read_window(0..8), [7; 8], "{link}");
        far.stall_receivers(false);
        assert_eq!(passive.outcome(WrId::receive(0)).await, Outcome::Received { len: 8 }, "{link}");
        assert_eq!(active.outcome(WrId::send(2)).await, Outcome::Sent, "{link}");
    }
}
