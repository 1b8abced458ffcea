//! The same exchanges over TCP.

use std::io;
use std::time::Instant;

use futures_util::future::try_join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::figures::{Latencies, WARM_UP};
use super::quota::Quota;
use super::run::Run;

/// Bytes read at once.
const PIECE: usize = 256 << 10;

/// One message after the other, each answered.
pub(super) async fn ping(stream: &mut TcpStream, run: Run) -> io::Result<(u64, Option<Latencies>)> {
    let mut bytes = vec![0; run.size as usize];
    let end = Instant::now() + run.time();
    let mut latencies = Latencies::new();
    let mut messages = 0;
    loop {
        let begun = Instant::now();
        stream.write_all(&bytes).await?;
        stream.read_exact(&mut bytes).await?;
        let now = Instant::now();
        messages += 1;
        let over = now >= end;
        if messages > WARM_UP || over {
            latencies.add((now - begun) / 2);
        }
        if over {
            return Ok((messages, Some(latencies)));
        }
    }
}

/// Sends messages on all streams until the time is over. Returns how many.
pub(super) async fn send(streams: &mut [TcpStream], run: Run) -> io::Result<u64> {
    let end = Instant::now() + run.time();
    let bytes = vec![0; run.size as usize];
    let send = async |stream: &mut TcpStream| {
        let mut messages = 0;
        loop {
            stream.write_all(&bytes).await?;
            messages += 1;
            if Instant::now() >= end {
                return Ok::<u64, io::Error>(messages);
            }
        }
    };
    Ok(try_join_all(streams.iter_mut().map(send)).await?.iter().sum())
}

/// Sends each message back.
pub(super) async fn echo(stream: &mut TcpStream, run: Run, quota: &Quota) -> io::Result<()> {
    let mut bytes = vec![0; run.size as usize];
    loop {
        stream.read_exact(&mut bytes).await?;
        stream.write_all(&bytes).await?;
        quota.count(run.size.into());
    }
}

/// Reads from all streams.
pub(super) async fn take(streams: &mut [TcpStream], quota: &Quota) -> io::Result<Vec<()>> {
    let take = async |stream: &mut TcpStream| {
        let mut bytes = vec![0; PIECE];
        loop {
            match stream.read(&mut bytes).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => quota.count(count as u64),
            }
        }
    };
    try_join_all(streams.iter_mut().map(take)).await
}
