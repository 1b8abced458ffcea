//! `-t stream` and `-t echo`: the byte stream without RESP, to measure the network without a server.
//!
//! The other end is this tool too, with `--serve-echo`. The first byte of a connection selects what the server does: `E`
//! sends everything back, `S` counts it. After the last message of a stream the server sends the count as 8 bytes,
//! big-endian, so that the sender knows that all bytes have arrived.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinSet;
use valkey_rdma_transport::{AnyStream, Config, DeviceKind, Listener, TransportError};

use crate::args::Transport;
use crate::generator::{DialError, Limit, NoReply, ReplyTimer, Target, dial_plain};
use crate::measure::Latencies;
use valkey_rdma_program::Interrupt;

/// What goes where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// `-t stream`: as many messages as fit, one way.
    OneWay,
    /// `-t echo`: one message there and back at a time.
    Both,
}

/// How much is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    /// Number of connections.
    pub(crate) connections: usize,
    /// Length of each message in bytes.
    pub(crate) message: usize,
    /// When it ends; requests are messages.
    pub(crate) limit: Limit,
    /// How long one message may take; `None` for ever.
    pub(crate) reply_timeout: Option<Duration>,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("cannot serve at {addr}")]
    Bind { addr: SocketAddr, source: io::Error },
    #[error("cannot serve over this device")]
    Device(#[from] TransportError),
    #[error("the connection broke; is the other end valkey-rdma-benchmark --serve-echo?")]
    Broken(#[from] io::Error),
    #[error(
        "the echo differs from what was sent, at byte {at} of a message; is the other end valkey-rdma-benchmark --serve-echo?"
    )]
    Differs { at: usize },
    #[error("the other end does not respond; is it valkey-rdma-benchmark --serve-echo?")]
    Silent(#[from] NoReply),
    #[error("{arrived} bytes arrived of {sent} that were sent")]
    Miscounted { arrived: u64, sent: u64 },
}

/// What was measured.
#[derive(Debug)]
pub(crate) struct Measured {
    direction: Direction,
    bytes: u64,
    messages: u64,
    elapsed: Duration,
    latencies: Latencies,
}

impl Measured {
    /// Writes it as a table.
    pub(crate) fn write(&self, out: &mut dyn Write, target: &Target, ends: &Ends) -> io::Result<()> {
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        writeln!(
            out,
            "{} over {}: {} connections, messages of {} bytes",
            self.direction,
            target.transport(),
            ends.connections,
            ends.message
        )?;
        writeln!(
            out,
            "{:>14} {:>14} {:>12} {:>12} {:>12}",
            "messages/s", "MB/s", "p50 us", "p99 us", "max us"
        )?;
        let us = |duration: Duration| match self.direction {
            Direction::OneWay => "-".to_owned(),
            Direction::Both => format!("{:.3}", duration.as_secs_f64() * 1e6),
        };
        writeln!(
            out,
            "{:>14.0} {:>14.2} {:>12} {:>12} {:>12}",
            self.messages as f64 / seconds,
            self.bytes as f64 / seconds / 1e6,
            us(self.latencies.quantile(0.5)),
            us(self.latencies.quantile(0.99)),
            us(self.latencies.max()),
        )
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Direction::OneWay => "stream",
            Direction::Both => "echo",
        })
    }
}

/// The first byte of a connection whose bytes are sent back.
const ECHO: u8 = b'E';
/// The first byte of a connection whose bytes are counted.
const SINK: u8 = b'S';
/// Ends a stream: no message byte has this value.
const END: u8 = 0xff;
/// How long messages in flight may take after an interrupt.
const LAST_MESSAGE: Duration = Duration::from_secs(1);
/// The pause after a connection could not be accepted, as without files to have.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Room for received bytes.
const ROOM: usize = 256 * 1024;

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

/// Serves at `addr` until the user interrupts; over a device, with `config`.
pub(crate) async fn serve(
    addr: SocketAddr,
    transport: Transport,
    config: &Config,
    out: &mut dyn Write,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    let device = match transport {
        Transport::Tcp => {
            let listener = TcpListener::bind(addr).await.map_err(|source| Error::Bind { addr, source })?;
            let local = listener.local_addr().map_err(|source| Error::Bind { addr, source })?;
            announce(out, transport, local)?;
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let Ok((stream, _)) = accepted else {
                            tokio::time::sleep(ACCEPT_PAUSE).await;
                            continue;
                        };
                        let _ = stream.set_nodelay(true);
                        tokio::spawn(serve_one(AnyStream::Tcp(stream)));
                    }
                    () = interrupt.asked() => return Ok(()),
                }
            }
        }
        Transport::Rdma => DeviceKind::Verbs,
        Transport::Emulated => DeviceKind::Emulated,
    };
    let mut listener = Listener::bind(device, addr, config).await?;
    announce(out, transport, listener.local_addr())?;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // A connection that failed affects no other.
                match accepted {
                    Ok(stream) => drop(tokio::spawn(serve_one(AnyStream::Device(stream)))),
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                }
            }
            () = interrupt.asked() => return Ok(()),
        }
    }
}

fn announce(out: &mut dyn Write, transport: Transport, addr: SocketAddr) -> io::Result<()> {
    writeln!(out, "ready {}://{addr}", transport.scheme())?;
    out.flush()
}

/// Serves one connection to its end; whatever its peer does ends this connection only.
async fn serve_one(stream: AnyStream) -> io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut room = vec![0; ROOM];
    let mut first = [0];
    reader.read_exact(&mut first).await?;
    let mut count = 0u64;
    loop {
        let len = reader.read(&mut room).await?;
        match (first[0], len) {
            (_, 0) => return writer.shutdown().await,
            (ECHO, len) => {
                writer.write_all(&room[..len]).await?;
                writer.flush().await?;
            }
            (SINK, len) if room[len - 1] == END => {
                writer.write_all(&(count + len as u64 - 1).to_be_bytes()).await?;
                writer.flush().await?;
                count = 0;
            }
            (SINK, len) => count += len as u64,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// What perftest's programs measure between the same machines, where they are installed: the reference for what the
/// hardware can do. Their server must run on the other machine; if it does not, the output says how to start it.
pub(crate) async fn write_reference(
    out: &mut dyn Write,
    target: &Target,
    direction: Direction,
    message: usize,
) -> io::Result<()> {
    if !target.is_device() {
        return Ok(());
    }
    let program = match direction {
        Direction::OneWay => "ib_write_bw",
        Direction::Both => "ib_write_lat",
    };
    let Some(path) = installed(program) else {
        return writeln!(out, "no physical reference: {program} (package perftest) is not installed here");
    };
    let host = target.endpoint.host();
    let run = Command::new(path).args(["-R", "-s", &message.to_string(), host]).kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(20), run).await;
    match output {
        Ok(Ok(output)) if output.status.success() => {
            writeln!(out, "physical reference, {program} -R -s {message}:")?;
            let text = String::from_utf8_lossy(&output.stdout);
            text.lines()
                .filter(|line| line.contains("#bytes") || line.trim_start().starts_with(char::is_numeric))
                .try_for_each(|line| writeln!(out, "  {}", line.trim()))
        }
        _ => writeln!(out, "no physical reference: start {program} -R -s {message} on {host} to have one"),
    }
}

fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}
