//! The end that sends and measures.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use valkey_rdma_program::Interrupt;
use valkey_rdma_transport::AnyStream;

use super::{Direction, ECHO, END, Ends, Error, Measured, ROOM, SINK};
use crate::generator::{Limit, ReplyTimer, Target, dial_plain};
use crate::measure::Latencies;

/// Measures the byte stream to `target`, which must serve it.
pub(crate) async fn measure(
    target: &Target,
    direction: Direction,
    ends: &Ends,
    interrupt: &Interrupt,
) -> Result<Measured, Error> {
    let mut streams = Vec::new();
    for _ in 0..ends.connections {
        streams.push(dial_plain(target).await?);
    }
    let shared = Arc::new(Sending {
        message: (0..ends.message).map(|at| (at % 251) as u8).collect(),
        limit: ends.limit,
        reply_timeout: ends.reply_timeout,
        sent: AtomicU64::new(0),
        started: Instant::now(),
        interrupt: interrupt.clone(),
    });
    let mut tasks = JoinSet::new();
    for stream in streams {
        let shared = Arc::clone(&shared);
        tasks.spawn(async move {
            match direction {
                Direction::OneWay => shared.stream(stream).await,
                Direction::Both => shared.echo(stream).await,
            }
        });
    }
    let (mut messages, mut latencies) = (0, Latencies::default());
    let hung = async {
        interrupt.asked().await;
        tokio::time::sleep(LAST_MESSAGE).await;
    };
    tokio::pin!(hung);
    loop {
        let ended = tokio::select! {
            ended = tasks.join_next() => ended,
            () = &mut hung => {
                tasks.shutdown().await;
                None
            }
        };
        let Some(ended) = ended else { break };
        match ended {
            Ok(part) => {
                let (count, part) = part?;
                messages += count;
                latencies.merge(&part);
            }
            Err(error) => {
                if let Ok(panic) = error.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
    let elapsed = shared.started.elapsed();
    Ok(Measured { direction, bytes: messages * ends.message as u64, messages, elapsed, latencies })
}

struct Sending {
    message: Vec<u8>,
    limit: Limit,
    reply_timeout: Option<Duration>,
    sent: AtomicU64,
    started: Instant,
    interrupt: Interrupt,
}

impl Sending {
    /// Whether another message may be sent, which then counts.
    fn draw(&self) -> bool {
        if self.interrupt.is_asked() {
            return false;
        }
        match self.limit {
            Limit::Requests(most) => self.sent.fetch_add(1, Ordering::Relaxed) < most,
            Limit::Time(limit) => self.started.elapsed() < limit,
        }
    }

    async fn stream(&self, mut stream: AnyStream) -> Result<(u64, Latencies), Error> {
        let mut timer = ReplyTimer::new(self.reply_timeout);
        let mut begin = Instant::now();
        timer.wait(|| begin, stream.write_all(&[SINK])).await??;
        let mut count = 0;
        while self.draw() {
            begin = Instant::now();
            timer.wait(|| begin, stream.write_all(&self.message)).await??;
            count += 1;
        }
        let mut arrived = [0; 8];
        let end = async {
            stream.write_all(&[END]).await?;
            stream.flush().await?;
            stream.read_exact(&mut arrived).await
        };
        begin = Instant::now();
        timer.wait(|| begin, end).await??;
        let (arrived, sent) = (u64::from_be_bytes(arrived), count * self.message.len() as u64);
        if arrived != sent {
            return Err(Error::Miscounted { arrived, sent });
        }
        Ok((count, Latencies::default()))
    }

    async fn echo(&self, stream: AnyStream) -> Result<(u64, Latencies), Error> {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut timer = ReplyTimer::new(self.reply_timeout);
        let begin = Instant::now();
        timer.wait(|| begin, writer.write_all(&[ECHO])).await??;
        let mut echo = vec![0; self.message.len().min(ROOM)];
        let mut latencies = Latencies::default();
        let mut count = 0;
        while self.draw() {
            let begin = Instant::now();
            let send = async {
                writer.write_all(&self.message).await?;
                writer.flush().await
            };
            let receive = async {
                let mut at = 0;
                while at < self.message.len() {
                    let room = (self.message.len() - at).min(echo.len());
                    let len = reader.read(&mut echo[..room]).await?;
                    if len == 0 {
                        return Err(Error::Broken(io::ErrorKind::UnexpectedEof.into()));
                    }
                    if let Some(wrong) = (0..len).find(|&byte| echo[byte] != self.message[at + byte]) {
                        return Err(Error::Differs { at: at + wrong });
                    }
                    at += len;
                }
                Ok(())
            };
            // A large echo comes back while it is still being sent.
            let both = async { tokio::join!(send, receive) };
            let (sent, received) = timer.wait(|| begin, both).await?;
            sent?;
            received?;
            latencies.record(begin.elapsed());
            count += 1;
        }
        Ok((count, latencies))
    }
}

/// How long messages in flight may take after an interrupt.
const LAST_MESSAGE: Duration = Duration::from_secs(1);
