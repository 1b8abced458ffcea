//! A peer that never lets the driver rest. On the emulated device only, because the clock is virtual.

#![cfg(feature = "emulated")]

use std::future::poll_fn;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use valkey_rdma_proto::wire::{ControlMessage, MESSAGE_LEN};
use valkey_rdma_proto::work::{SendOp, SendRequest, Slice, WrId};
use valkey_rdma_transport::device::{self, Access, CmEvent, DeviceOptions};
use valkey_rdma_transport::{Config, DeviceKind, Listener};

/// More keepalives than the driver takes between two seconds of the virtual clock, so that some are always left.
const FLOOD: u64 = 1 << 16;

#[tokio::test(start_paused = true)]
async fn a_flood_of_keepalives_does_not_put_off_the_handshake_deadline_h4() {
    let addr = "127.0.0.1:0".parse().expect("an address");
    let mut listener = Listener::bind(DeviceKind::Emulated, addr, &Config::default()).await.expect("listens");
    let options = DeviceOptions {
        send_depth: 2 * FLOOD as u32,
        receive_depth: 16,
        max_inline: 0,
        ..DeviceOptions::default()
    };
    let mut peer = device::open(DeviceKind::Emulated, listener.local_addr(), &options).await.expect("opens");
    let memory = peer.register(MESSAGE_LEN as u32, Access::Local).expect("registers");
    let keepalive = ControlMessage::Keepalive.encode();
    peer.write_local(memory.id, 0..MESSAGE_LEN, &mut |bytes| bytes.copy_from_slice(&keepalive));
    peer.establish().expect("asks");
    let mut stream = listener.accept().await.expect("accepts");
    assert_eq!(poll_fn(|cx| peer.poll_cm_event(cx)).await.expect("an event"), CmEvent::Established);

    let local = Slice { region: memory.id, offset: 0, len: MESSAGE_LEN as u32 };
    let chain: Vec<SendRequest> = (1..=FLOOD)
        .map(|n| SendRequest { wr_id: WrId::send(n), local, op: SendOp::Send, signalled: n == FLOOD })
        .collect();
    let ended = tokio::spawn(async move { stream.read(&mut [0]).await });
    peer.post_sends(&chain).expect("the queue is empty");
    peer.post_sends(&chain).expect("the queue is half empty");
    let mut completions = Vec::new();
    for _ in 0..20 {
        tokio::time::advance(Duration::from_secs(1)).await;
        // Half of the flood is taken: the other half is under way while this one is poured again.
        completions.clear();
        peer.poll(&mut completions, 16).expect("a completion queue");
        if !completions.is_empty() && !ended.is_finished() {
            peer.post_sends(&chain).expect("the queue is half empty");
        }
    }
    assert!(ended.is_finished(), "the deadline has passed, and the flood goes on");
    let error = ended.await.expect("joins").expect_err("no Register came");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
}
