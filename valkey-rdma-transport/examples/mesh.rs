//! Every node connected with every other: started once per node, each with the same list of addresses.
//!
//! `mesh NODE DEVICE ADDRESS:PORT...`, where NODE counts from 0; without arguments, three nodes in this process.
#![expect(clippy::print_stdout, reason = "it is what there is to see")]

mod common;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use common::{Result, options};
use valkey_rdma_transport::raw::{Access, Listener, QueuePair};
use valkey_rdma_transport::{DeviceKind, TransportError};

const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// Sends the number of this node, and returns the number of the peer.
async fn greet(queue_pair: &mut QueuePair, node: u8) -> Result<u8> {
    let (mine, theirs) = (queue_pair.register(1, Access::Local)?, queue_pair.register(1, Access::Local)?);
    queue_pair.post_recv(RECEIVE, theirs)?;
    queue_pair.establish().await?;
    queue_pair.copy_in(mine, &[node]);
    queue_pair.post_send(SEND, mine)?;
    queue_pair.wait_for(RECEIVE).await?;
    Ok(queue_pair.copy_out(theirs)[0])
}

/// Connects to a node that may not listen yet: nodes are started in any order.
async fn connect(device: DeviceKind, addr: SocketAddr, node: u8) -> Result<(u8, QueuePair)> {
    loop {
        let mut queue_pair = QueuePair::open(device, addr, &options()).await?;
        match greet(&mut queue_pair, node).await {
            Ok(other) => {
                // This side leaves first, so not before its number is there.
                queue_pair.wait_for(SEND).await?;
                return Ok((other, queue_pair));
            }
            Err(error) => match error.downcast_ref() {
                Some(TransportError::Refused { .. }) => tokio::time::sleep(Duration::from_millis(100)).await,
                _ => return Err(error),
            },
        }
    }
}

/// Of any two nodes, the one with the higher number connects to the other.
async fn run(mut listener: Listener, device: DeviceKind, node: u8, addrs: &[SocketAddr]) -> Result {
    let (mut lower, mut higher) = (Vec::new(), Vec::new());
    for addr in &addrs[..node.into()] {
        lower.push(connect(device, *addr, node).await?);
    }
    for _ in usize::from(node) + 1..addrs.len() {
        let mut queue_pair = listener.incoming().await?;
        higher.push((greet(&mut queue_pair, node).await?, queue_pair));
    }
    higher.sort_unstable_by_key(|(other, _)| *other);
    let others = lower.iter().chain(&higher).map(|(other, _)| other.to_string()).collect::<Vec<_>>();
    println!("node {node}: connected with {}", others.join(", "));
    // Of two nodes, the higher leaves first.
    drop(lower);
    for (_, queue_pair) in &mut higher {
        queue_pair.closed().await?;
    }
    Ok(())
}

async fn all_here() -> Result {
    let (device, any) = (DeviceKind::Emulated, SocketAddr::from(([127, 0, 0, 1], 0)));
    let mut listeners = Vec::new();
    for _ in 0..3 {
        listeners.push(Listener::bind(device, any, &options()).await?);
    }
    let addrs = listeners.iter().map(Listener::local_addr).collect::<Vec<_>>();
    let mut nodes =
        listeners.into_iter().zip(0..).map(|(listener, node)| run(listener, device, node, &addrs));
    let (Some(a), Some(b), Some(c)) = (nodes.next(), nodes.next(), nodes.next()) else { return Ok(()) };
    tokio::try_join!(a, b, c)?;
    Ok(())
}

async fn by_arguments() -> Result {
    let words = std::env::args().skip(1).collect::<Vec<_>>();
    let [node, device, addrs @ ..] = &words[..] else { return all_here().await };
    let (node, device) = (node.parse::<u8>()?, device.parse::<DeviceKind>()?);
    let addrs = addrs.iter().map(|addr| addr.parse()).collect::<std::result::Result<Vec<SocketAddr>, _>>()?;
    let own = *addrs.get(usize::from(node)).ok_or("the list has no address of this node")?;
    run(Listener::bind(device, own, &options()).await?, device, node, &addrs).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    common::exit(by_arguments().await)
}
