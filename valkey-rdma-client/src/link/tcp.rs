//! TCP sockets: how they are connected, and what they offer beyond a byte stream, such as one read into several places.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream};

use crate::config::Config;
use crate::stats::ConnectionInfo;

/// Connects, from `source` if one is given. `silence`: how long the peer may be silent before the connection is lost.
pub(super) async fn connect(
    address: SocketAddr,
    source: Option<IpAddr>,
    silence: Option<Duration>,
) -> io::Result<TcpStream> {
    let stream = match source {
        None => TcpStream::connect(address).await?,
        Some(source) => {
            let socket = if source.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            socket.bind(valkey_rdma_transport::address::source_towards(source, address))?;
            socket.connect(address).await?
        }
    };
    // The multiplexer forms batches; the kernel must not delay them.
    stream.set_nodelay(true)?;
    if let Some(silence) = silence {
        let socket = SockRef::from(&stream);
        // Three probes within the second half of the limit.
        let wait = |share: Duration| share.clamp(SECOND, LONGEST_PROBE);
        let probes = TcpKeepalive::new().with_time(wait(silence / 2)).with_interval(wait(silence / 6));
        socket.set_tcp_keepalive(&probes)?;
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(silence.min(LONGEST_TIMEOUT)))?;
    }
    Ok(stream)
}

/// How long a server may leave a PING without an answer. `None` over RDMA and the emulated device, which notice a silent server themselves.
pub(crate) fn keepalive_limit(info: &ConnectionInfo, config: &Config) -> Option<Duration> {
    let limit = config.keepalive_timeout.filter(|_| info.device.is_none());
    limit.map(|limit| limit.clamp(SECOND, LONGEST_TIMEOUT))
}

/// The shortest interval of keepalive probes.
const SECOND: Duration = Duration::from_secs(1);
/// The longest interval of keepalive probes: 2^15 - 1 seconds.
const LONGEST_PROBE: Duration = Duration::from_secs(32_767);
/// The kernel counts milliseconds in 31 bits: 24 days.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(20 * 24 * 3600);

/// Reads once into several buffers, in order. Returns how many bytes were read; 0 at the end of the stream.
pub(super) fn poll_read_vectored(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    buffers: &mut [IoSliceMut<'_>],
) -> Poll<io::Result<usize>> {
    let room: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    loop {
        ready!(stream.poll_read_ready(cx))?;
        let mut read = None;
        let tried = stream.try_io(Interest::READABLE, || {
            let count = *read.insert(stream.try_read_vectored(buffers)?);
            // A read that leaves room has emptied the socket. Without this, the next one would be a system call that finds nothing.
            if count > 0 && count < room { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match (read, tried) {
            (Some(count), _) => return Poll::Ready(Ok(count)),
            (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
            (None, Err(error)) => return Poll::Ready(Err(error)),
            (None, Ok(())) => {}
        }
    }
}
