//! The active end's socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};

use super::link::SocketLink;
use super::{Socket, socket_path};
use crate::device::DeviceKind;
use crate::emulated::endpoint::next_port;
use crate::emulated::side::Side;
use crate::error::TransportError;

/// Opens a socket to the listener at `peer`: over a Unix socket in `directory`, or TCP. Returns the link, and the
/// address that this end goes by. Where nobody listens, that is told when the link is asked to connect.
///
/// # Errors
/// [`TransportError::Unreachable`] if there is no way to `peer`, or none within `limit`; [`TransportError::Device`] if
/// there can be no socket.
pub(in crate::emulated) async fn connect(
    side: Side,
    peer: SocketAddr,
    directory: Option<&Path>,
    limit: Duration,
) -> Result<(SocketLink, SocketAddr), TransportError> {
    let opened = tokio::time::timeout(limit, open(peer, directory)).await;
    match opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok((socket, local)) => Ok((SocketLink::active(side, local.port(), socket), local)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Ok((SocketLink::nobody(side), made_up(peer.ip())))
        }
        // No directory, no socket in it: nobody listens.
        Err(error) if directory.is_some() && error.kind() == io::ErrorKind::NotFound => {
            Ok((SocketLink::nobody(side), made_up(peer.ip())))
        }
        Err(error) => Err(failure(peer, error)),
    }
}

fn failure(peer: SocketAddr, source: io::Error) -> TransportError {
    match source.kind() {
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::TimedOut => {
            // As the connection manager has it: the OS error, negative.
            let status = -source.raw_os_error().unwrap_or(ETIMEDOUT);
            TransportError::Unreachable { peer, device: DeviceKind::Emulated, status }
        }
        _ => TransportError::Device { call: "connect", source },
    }
}

/// Linux's number; the standard library has no name for it.
const ETIMEDOUT: i32 = 110;

async fn open(peer: SocketAddr, directory: Option<&Path>) -> io::Result<(Box<dyn Socket>, SocketAddr)> {
    if let Some(directory) = directory {
        let socket = UnixStream::connect(socket_path(directory, peer.port())).await?;
        return Ok((Box::new(socket), made_up(peer.ip())));
    }
    let socket = TcpStream::connect(peer).await?;
    socket.set_nodelay(true)?;
    let local = socket.local_addr()?;
    if local == peer {
        // TCP connects a socket to itself if it happens to pick the port that it is to reach.
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok((Box::new(socket), local))
}

/// An address for an end that has none of its own.
fn made_up(like: IpAddr) -> SocketAddr {
    let ip = match like {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, next_port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_out_of_reach_is_told_from_a_socket_that_cannot_be_had() {
        let peer = SocketAddr::from(([192, 0, 2, 1], 6379));
        for (errno, status) in [(113, -113), (101, -101), (110, -110)] {
            let error = failure(peer, io::Error::from_raw_os_error(errno));
            assert!(
                matches!(error, TransportError::Unreachable { status: found, .. } if found == status),
                "{error}"
            );
        }
        let expired = failure(peer, io::ErrorKind::TimedOut.into());
        assert!(matches!(expired, TransportError::Unreachable { status: -110, .. }), "{expired}");
        let files = failure(peer, io::Error::from_raw_os_error(24));
        assert!(matches!(files, TransportError::Device { call: "connect", .. }), "{files}");
    }
}
