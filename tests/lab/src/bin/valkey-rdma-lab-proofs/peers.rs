//! Servers and clients within this process.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use valkey_rdma_transport::raw::FailureStatus;
use valkey_rdma_transport::{CloseReason, Config, DeviceKind, Listener, Monitor, Stream, TransportError};

use crate::outcome::{Outcome, bounded, ensure};

/// Small windows, so that many connections fit.
pub(crate) fn small() -> Config {
    Config::default()
        .rx_size(4096)
        .rx_buffers(2)
        .send_buffer(4096)
        .connect_timeout(std::time::Duration::from_secs(60))
}

/// The lab's address, any port.
pub(crate) fn lab() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 0))
}

/// A listener that sends every byte back, until dropped.
pub(crate) struct EchoServer {
    pub(crate) addr: SocketAddr,
    task: JoinHandle<()>,
}

impl EchoServer {
    pub(crate) async fn start(addr: SocketAddr, config: &Config) -> Outcome<Self> {
        let listener = Listener::bind(DeviceKind::Verbs, addr, config).await?;
        let addr = listener.local_addr();
        Ok(Self { addr, task: tokio::spawn(serve(listener)) })
    }

    /// Stops listening. Accepted connections go on.
    pub(crate) async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Accepts and echoes as long as the device is there.
pub(crate) async fn serve(mut listener: Listener) {
    loop {
        match listener.accept().await {
            Ok(stream) => drop(tokio::spawn(echo(stream))),
            Err(TransportError::DeviceRemoved) => return,
            // A request that could not be accepted concerns only its sender.
            Err(_) => {}
        }
    }
}

/// Sends every byte back until the client leaves (`Ok`), or the connection fails.
pub(crate) async fn echo(mut stream: Stream) -> io::Result<()> {
    let mut buffer = vec![0; 4096];
    loop {
        let len = stream.read(&mut buffer).await?;
        if len == 0 {
            return stream.shutdown().await;
        }
        stream.write_all(&buffer[..len]).await?;
    }
}

pub(crate) async fn connect(addr: SocketAddr) -> Outcome<Stream> {
    Ok(Stream::connect(DeviceKind::Verbs, addr, &small()).await?)
}

/// Sends `number` and reads it back.
pub(crate) async fn exchange(stream: &mut Stream, number: u64) -> io::Result<()> {
    let mut answer = [0; 8];
    stream.write_all(&number.to_le_bytes()).await?;
    stream.read_exact(&mut answer).await?;
    if u64::from_le_bytes(answer) == number {
        Ok(())
    } else {
        Err(io::Error::other(format!("{number} came back as {}", u64::from_le_bytes(answer))))
    }
}

/// The transport's error inside of a stream's, if it comes from there.
pub(crate) fn typed(error: &io::Error) -> Option<&TransportError> {
    error.get_ref().and_then(|error| error.downcast_ref())
}

/// Fails unless a connection ended as if the peer had closed it, which its kernel does for one that was killed: with the
/// end of the file, or a write that went nowhere. The kernel takes the window back before the queue pair, and refuses a write between
/// the two (`spec/peers.md`).
pub(crate) fn ensure_peer_left(who: &str, end: &io::Result<()>) -> Outcome {
    let left = match end {
        Ok(()) => true,
        Err(error) => match (error.kind(), typed(error)) {
            (io::ErrorKind::UnexpectedEof, None) => true,
            (io::ErrorKind::BrokenPipe, Some(TransportError::Lost(reason))) => *reason == CloseReason::Peer,
            (io::ErrorKind::ConnectionReset, Some(TransportError::Lost(reason))) => {
                *reason == CloseReason::Failed(FailureStatus::RemoteAccess)
            }
            _ => false,
        },
    };
    ensure(left, format!("{who}: an unexpected end: {end:?}"))
}

/// Waits until a connection has received something.
pub(crate) async fn traffic(monitor: &Monitor) -> Outcome {
    bounded("traffic", async {
        while monitor.stats().protocol.bytes_received < 64 {
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// Exchanges numbers until the connection ends. Returns the error that ended it.
pub(crate) async fn pump(mut stream: Stream) -> io::Error {
    let mut number = 0;
    loop {
        number += 1;
        if let Err(error) = exchange(&mut stream, number).await {
            return error;
        }
    }
}

/// A connection that has nothing to do with the others: it keeps exchanging numbers, and must never be disturbed.
pub(crate) struct Bystander {
    exchanges: Arc<AtomicU64>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Outcome>,
}

impl Bystander {
    pub(crate) async fn start(addr: SocketAddr) -> Outcome<Self> {
        let mut stream = connect(addr).await?;
        let exchanges = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = watch::channel(false);
        let counted = Arc::clone(&exchanges);
        let task = tokio::spawn(async move {
            while !*stopped.borrow() {
                let number = counted.load(Ordering::Relaxed) + 1;
                exchange(&mut stream, number).await?;
                counted.store(number, Ordering::Relaxed);
            }
            stream.shutdown().await?;
            Ok(())
        });
        let bystander = Self { exchanges, stop, task };
        bystander.goes_on().await?;
        Ok(bystander)
    }

    /// Waits until another exchange that began after this call has succeeded.
    pub(crate) async fn goes_on(&self) -> Outcome {
        let now = self.exchanges.load(Ordering::Relaxed);
        bounded("an exchange of the bystander", async {
            while self.exchanges.load(Ordering::Relaxed) < now + 2 {
                ensure(!self.task.is_finished(), "the bystander's connection ended")?;
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            Ok(())
        })
        .await?
    }

    /// Ends it in order. Returns how many exchanges it made.
    pub(crate) async fn finish(self) -> Outcome<u64> {
        self.goes_on().await?;
        let _ = self.stop.send(true);
        bounded("the bystander's end", self.task).await???;
        Ok(self.exchanges.load(Ordering::Relaxed))
    }
}
