//! SEND and RECV: a message from one side's memory into a buffer that the other side has posted for it.
#![expect(clippy::print_stdout, reason = "it is what there is to see")]

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;

use common::{Result, options};
use valkey_rdma_transport::DeviceKind;
use valkey_rdma_transport::raw::{Access, Listener, QueuePair};

/// The program chooses the ids. A completion brings back the id of the work request that is done.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

async fn listen_side(mut listener: Listener) -> Result {
    let mut queue_pair = listener.incoming().await?;
    // The device only touches memory that was registered with it.
    let inbox = queue_pair.register(64, Access::Local)?;
    let outbox = queue_pair.register(64, Access::Local)?;
    // Before the connection is there: a message needs a receive that waits for it.
    queue_pair.post_recv(RECEIVE, inbox)?;
    queue_pair.establish().await?;

    let received = queue_pair.wait_for(RECEIVE).await?;
    let len = received.received_len().unwrap_or(0);
    let message = queue_pair.copy_out(inbox.slice(0..len));
    println!("listen: received {:?}", String::from_utf8_lossy(&message));

    let answer = b"welcome";
    queue_pair.copy_in(outbox, answer);
    queue_pair.post_send(SEND, outbox.slice(0..answer.len() as u32))?;
    // Leaving first would cut off what the peer still does. Nor does this side wait for `SEND`: the peer leaves as soon as it has the
    // answer, perhaps before its device has acknowledged it.
    queue_pair.closed().await?;
    println!("listen: the peer has left");
    Ok(())
}

async fn connect_side(device: DeviceKind, addr: SocketAddr) -> Result {
    let mut queue_pair = QueuePair::open(device, addr, &options()).await?;
    let inbox = queue_pair.register(64, Access::Local)?;
    let outbox = queue_pair.register(64, Access::Local)?;
    queue_pair.post_recv(RECEIVE, inbox)?;
    queue_pair.establish().await?;

    let message = b"hello, RDMA";
    queue_pair.copy_in(outbox, message);
    queue_pair.post_send(SEND, outbox.slice(0..message.len() as u32))?;
    // The peer's device has it. Only now may these bytes of the outbox change again.
    queue_pair.wait_for(SEND).await?;
    println!("connect: sent {} bytes", message.len());

    let received = queue_pair.wait_for(RECEIVE).await?;
    let len = received.received_len().unwrap_or(0);
    let answer = queue_pair.copy_out(inbox.slice(0..len));
    println!("connect: received {:?}", String::from_utf8_lossy(&answer));
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    common::exit(common::run(listen_side, connect_side).await)
}
