//! A proxy: an RDMA device, or the emulated one, in front of a real Valkey.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{debug, warn};
use valkey_rdma_transport::{Listener, Stream, TransportError};

/// Forwards the bytes of every connection that `listener` accepts to a Valkey at `server` over TCP, and the replies back.
///
/// Returns when the listener has ended, with the reason. An error of one connection is logged and closes that connection
/// only.
///
/// Cancel safety: dropping the future closes all connections.
pub async fn forward(mut listener: Listener, server: SocketAddr) -> TransportError {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(stream) => drop(connections.spawn(relay(stream, server))),
                Err(TransportError::DeviceRemoved) => return TransportError::DeviceRemoved,
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "a connection was not accepted");
                    sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn relay(stream: Stream, server: SocketAddr) {
    if let Err(error) = relay_both_ways(stream, server).await {
        debug!(error = &error as &dyn std::error::Error, %server, "a proxied connection ended with an error");
    }
}

async fn relay_both_ways(mut stream: Stream, server: SocketAddr) -> io::Result<()> {
    let mut tcp = TcpStream::connect(server).await?;
    tcp.set_nodelay(true)?;
    copy_bidirectional(&mut stream, &mut tcp).await?;
    Ok(())
}

/// The pause after an error of the listener, for example when memory or descriptors are short.
const PAUSE: Duration = Duration::from_millis(100);
