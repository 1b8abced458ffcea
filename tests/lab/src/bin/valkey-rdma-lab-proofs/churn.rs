//! Many connections, a few at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

use crate::census::Census;
use crate::outcome::{Outcome, bounded};
use crate::peers::{self, EchoServer};

/// Connections after which libraries and the allocator have what they keep from their first use.
const WARM_UP: u64 = 50;

/// Connections at a time. Most of their time is waiting, not work.
const CALLERS: u64 = 8;

pub(crate) async fn prove(count: u64) -> Outcome {
    let server = EchoServer::start(peers::lab(), &peers::small()).await?;
    connect_and_close(&server, 0..WARM_UP).await?;
    let before = Census::settled().await?;
    connect_and_close(&server, 0..count / 2).await?;
    let halfway = before.returned().await?;
    connect_and_close(&server, count / 2..count).await?;
    let after = before.returned().await?;
    println!("   {count} connections, {CALLERS} at a time, each with a number sent and read back");
    println!("{}", before.beside(&[("halfway", &halfway), ("after", &after)]));
    server.stop().await;
    Ok(())
}

async fn connect_and_close(server: &EchoServer, numbers: std::ops::Range<u64>) -> Outcome {
    let (next, addr) = (Arc::new(AtomicU64::new(numbers.start)), server.addr);
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        callers.spawn(call(addr, Arc::clone(&next), numbers.end));
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    Ok(())
}

async fn call(addr: SocketAddr, next: Arc<AtomicU64>, end: u64) -> Outcome {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= end {
            return Ok(());
        }
        bounded("a connection", once(addr, number)).await??;
    }
}

async fn once(addr: SocketAddr, number: u64) -> Outcome {
    let mut stream = peers::connect(addr).await?;
    peers::exchange(&mut stream, number).await?;
    // Every other one is just dropped.
    if number.is_multiple_of(2) {
        stream.shutdown().await?;
    }
    Ok(())
}
