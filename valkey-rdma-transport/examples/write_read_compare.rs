//! WRITE and READ: one side works in the other's memory, whose program does nothing meanwhile.
#![expect(clippy::print_stdout, reason = "it is what there is to see")]

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;

use common::{Result, options};
use valkey_rdma_transport::DeviceKind;
use valkey_rdma_transport::raw::{Access, Listener, QueuePair, RemoteRegion};

const LEN: u32 = 4096;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const WRITE: u64 = 3;
const READ: u64 = 4;

async fn listen_side(mut listener: Listener) -> Result {
    let mut queue_pair = listener.incoming().await?;
    // The peer may write and read this memory, and no other.
    let shared = queue_pair.register(LEN, Access::RemoteReadWrite)?;
    let card = queue_pair.register(RemoteRegion::BYTES as u32, Access::Local)?;
    queue_pair.establish().await?;

    // To use it, the peer needs its address and its key: a message brings them.
    queue_pair.copy_in(card, &shared.remote().to_bytes());
    queue_pair.post_send(SEND, card)?;
    queue_pair.wait_for(SEND).await?;
    println!("listen: the peer has address and key of {LEN} bytes");

    queue_pair.closed().await?;
    // No work request of this side had to do with it, and no completion came.
    let bytes = queue_pair.copy_out(shared);
    println!("listen: the peer has left; the first bytes are {:?}", &bytes[..4]);
    Ok(())
}

async fn connect_side(device: DeviceKind, addr: SocketAddr) -> Result {
    let mut queue_pair = QueuePair::open(device, addr, &options()).await?;
    let card = queue_pair.register(RemoteRegion::BYTES as u32, Access::Local)?;
    let there = queue_pair.register(LEN, Access::Local)?;
    let back = queue_pair.register(LEN, Access::Local)?;
    queue_pair.post_recv(RECEIVE, card)?;
    queue_pair.establish().await?;

    queue_pair.wait_for(RECEIVE).await?;
    let remote = RemoteRegion::from_bytes(&queue_pair.copy_out(card)).ok_or("a message too short")?;
    println!("connect: may use {} bytes of the peer", remote.len);

    let pattern = (0..LEN).map(|n| (n * 7 + 1) as u8).collect::<Vec<_>>();
    queue_pair.copy_in(there, &pattern);
    queue_pair.post_write(WRITE, there, remote)?;
    queue_pair.wait_for(WRITE).await?;
    println!("connect: written");

    queue_pair.post_read(READ, back, remote)?;
    queue_pair.wait_for(READ).await?;
    if queue_pair.copy_out(back) != pattern {
        return Err("the buffers differ".into());
    }
    println!("connect: read back: buffers match");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    common::exit(common::run(listen_side, connect_side).await)
}
