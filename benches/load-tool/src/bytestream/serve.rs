//! `--serve-echo`: the end that echoes or counts.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use valkey_rdma_program::Interrupt;
use valkey_rdma_transport::{AnyStream, Config, DeviceKind, Listener, address};

use super::{ECHO, END, Error, ROOM, SINK};
use crate::args::Transport;

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
    writeln!(out, "ready {}://{}", transport.scheme(), address::authority(addr))?;
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

/// The pause after a connection could not be accepted, as without files to have.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
