//! Many queue pairs at once, and many messages in flight on each, sent from the registered memory where they lie.
#![expect(clippy::print_stdout, reason = "it is what there is to see")]

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;

use common::{Result, options};
use tokio::task::JoinSet;
use valkey_rdma_transport::DeviceKind;
use valkey_rdma_transport::raw::{Access, Listener, QueuePair, Request};

const QUEUE_PAIRS: usize = 4;
const MESSAGES: u32 = 256;
const LEN: u32 = 4096;
/// Messages in flight on a queue pair, each in a part of the buffer that is its own.
const SLOTS: u32 = 16;

/// Receives all messages, and posts each part of the buffer again as soon as it was looked at.
async fn receive(mut queue_pair: QueuePair) -> Result<u64> {
    let buffer = queue_pair.register(SLOTS * LEN, Access::Local)?;
    let part = |slot: u32| buffer.slice(slot * LEN..(slot + 1) * LEN);
    queue_pair.post_recvs((0..SLOTS).map(|slot| (slot.into(), part(slot))))?;
    queue_pair.establish().await?;
    let mut bytes = 0;
    for _ in 0..MESSAGES {
        let received = queue_pair.wait().await?;
        bytes += u64::from(received.received_len().unwrap_or(0));
        queue_pair.post_recv(received.id, part(received.id as u32))?;
    }
    queue_pair.closed().await?;
    Ok(bytes)
}

/// Sends all messages. A new one is posted whenever one is done.
async fn send(mut queue_pair: QueuePair) -> Result<u64> {
    let buffer = queue_pair.register(SLOTS * LEN, Access::Local)?;
    let part = |slot: u32| buffer.slice(slot * LEN..(slot + 1) * LEN);
    queue_pair.establish().await?;
    // One doorbell for all of them.
    queue_pair.post_chain((0..SLOTS).map(|slot| Request::send(slot.into(), part(slot))))?;
    for _ in SLOTS..MESSAGES {
        let done = queue_pair.wait().await?;
        queue_pair.post_send(done.id, part(done.id as u32))?;
    }
    for _ in 0..SLOTS {
        queue_pair.wait().await?;
    }
    Ok(u64::from(MESSAGES) * u64::from(LEN))
}

async fn sum(mut tasks: JoinSet<Result<u64>>) -> Result<u64> {
    let mut sum = 0;
    while let Some(bytes) = tasks.join_next().await {
        sum += bytes??;
    }
    Ok(sum)
}

async fn listen_side(mut listener: Listener) -> Result {
    let mut tasks = JoinSet::new();
    for _ in 0..QUEUE_PAIRS {
        tasks.spawn(receive(listener.incoming().await?));
    }
    println!("listen: {} bytes over {QUEUE_PAIRS} queue pairs", sum(tasks).await?);
    Ok(())
}

async fn connect_side(device: DeviceKind, addr: SocketAddr) -> Result {
    let mut tasks = JoinSet::new();
    for _ in 0..QUEUE_PAIRS {
        tasks.spawn(send(QueuePair::open(device, addr, &options()).await?));
    }
    let bytes = sum(tasks).await?;
    println!("connect: {bytes} bytes in {} messages", QUEUE_PAIRS as u32 * MESSAGES);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    common::exit(common::run(listen_side, connect_side).await)
}
