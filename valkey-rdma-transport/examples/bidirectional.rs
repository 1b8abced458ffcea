//! WRITE with immediate, both ways at once: bytes into the peer's memory, and a number that announces them.
#![expect(clippy::print_stdout, reason = "it is what there is to see")]

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;

use common::{Result, options};
use valkey_rdma_transport::DeviceKind;
use valkey_rdma_transport::raw::{Access, Listener, QueuePair, RemoteRegion, Request};

const ROUNDS: u32 = 100;
const LEN: u32 = 1024;
const CARD: u64 = 1;
const SEND: u64 = 2;
const WRITE: u64 = 3;
/// Receives for the numbers of the peer: one each.
const NUMBER: u64 = 4;

/// Both sides do the same. Returns before the last write is done.
async fn exchange(mut queue_pair: QueuePair, name: &str) -> Result<QueuePair> {
    let window = queue_pair.register(LEN, Access::RemoteWrite)?;
    let source = queue_pair.register(LEN, Access::Local)?;
    let card = queue_pair.register(RemoteRegion::BYTES as u32, Access::Local)?;
    let peers_card = queue_pair.register(RemoteRegion::BYTES as u32, Access::Local)?;
    queue_pair.post_recv(CARD, peers_card)?;
    // A number comes without bytes for the receive, whose buffer may be empty: the bytes are in the window by then.
    queue_pair.post_recvs((0..ROUNDS).map(|_| (NUMBER, window.slice(0..0))))?;
    queue_pair.establish().await?;

    queue_pair.copy_in(card, &window.remote().to_bytes());
    queue_pair.post_send(SEND, card)?;
    queue_pair.wait_for(CARD).await?;
    let remote = RemoteRegion::from_bytes(&queue_pair.copy_out(peers_card)).ok_or("a message too short")?;

    let mut sum = 0;
    for round in 1..=ROUNDS {
        if round > 1 {
            // The peer has the bytes of the round before: the source may be filled again.
            queue_pair.wait_for(WRITE).await?;
        }
        queue_pair.copy_in(source, &[round as u8; LEN as usize]);
        queue_pair.post_chain([Request::write(WRITE, source, remote).with_imm(round)])?;
        let number = queue_pair.wait_for(NUMBER).await?;
        sum += number.imm().unwrap_or(0);
    }
    println!("{name}: {ROUNDS} writes there, {ROUNDS} back, the numbers add up to {sum}");
    Ok(queue_pair)
}

async fn listen_side(mut listener: Listener) -> Result {
    let queue_pair = listener.incoming().await?;
    let mut queue_pair = exchange(queue_pair, "listen").await?;
    // Not for the last write: the peer leaves as soon as it has those bytes, perhaps before its device has acknowledged them.
    queue_pair.closed().await?;
    Ok(())
}

async fn connect_side(device: DeviceKind, addr: SocketAddr) -> Result {
    let queue_pair = QueuePair::open(device, addr, &options()).await?;
    let mut queue_pair = exchange(queue_pair, "connect").await?;
    // Leaving earlier could take the last bytes along.
    queue_pair.wait_for(WRITE).await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    common::exit(common::run(listen_side, connect_side).await)
}
