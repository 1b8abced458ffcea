//! Three ways to wait for a completion: sleep until the device raises an event, look without end, or look for a while first.
#![expect(clippy::print_stdout, reason = "it is what there is to see")]

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use common::{Result, options};
use valkey_rdma_transport::raw::{Access, Listener, QueuePair};
use valkey_rdma_transport::{DeviceKind, Polling};

const ROUNDS: u32 = 1000;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const WAYS: [Polling; 3] = [Polling::Event, Polling::Busy, Polling::Adaptive];

async fn listen_side(mut listener: Listener) -> Result {
    let mut queue_pair = listener.incoming().await?;
    let byte = queue_pair.register(1, Access::Local)?;
    queue_pair.post_recv(RECEIVE, byte)?;
    queue_pair.establish().await?;
    for round in 0..ROUNDS * WAYS.len() as u32 {
        queue_pair.wait_for(RECEIVE).await?;
        if round > 0 {
            queue_pair.wait_for(SEND).await?;
        }
        queue_pair.post_recv(RECEIVE, byte)?;
        queue_pair.post_send(SEND, byte)?;
    }
    // Not for the last `SEND`: the peer leaves as soon as it has that byte.
    queue_pair.closed().await?;
    println!("listen: every ping answered");
    Ok(())
}

async fn connect_side(device: DeviceKind, addr: SocketAddr) -> Result {
    let mut queue_pair = QueuePair::open(device, addr, &options()).await?;
    let byte = queue_pair.register(1, Access::Local)?;
    queue_pair.post_recv(RECEIVE, byte)?;
    queue_pair.establish().await?;
    if let Some(reason) = queue_pair.adaptive_off() {
        println!("connect: {reason}");
    }
    for polling in WAYS {
        queue_pair.set_polling(polling, Duration::from_micros(50));
        let before = queue_pair.counters();
        for _ in 0..ROUNDS {
            queue_pair.post_send(SEND, byte)?;
            queue_pair.wait_for(RECEIVE).await?;
            queue_pair.post_recv(RECEIVE, byte)?;
            queue_pair.wait_for(SEND).await?;
        }
        let after = queue_pair.counters();
        println!(
            "connect: {polling}: {ROUNDS} round trips, {} sleeps, {} events, {} empty looks",
            after.sleeps - before.sleeps,
            after.events - before.events,
            after.spins - before.spins,
        );
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    common::exit(common::run(listen_side, connect_side).await)
}
