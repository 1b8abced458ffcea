//! The active end's socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};

use super::session::{Phase, SocketLink};
use super::{Socket, driver, failed, socket_path};
use crate::device::DeviceKind;
use crate::emulated::directory::{loopback_like, next_port};
use crate::emulated::queue_pair::QueuePair;
use crate::error::TransportError;

/// Opens a socket to the listener at `peer`: over a Unix socket in `directory`, or TCP. Returns the link, and the
/// address that this end goes by. Without a listener, the link is rejected when it is asked to connect.
///
/// # Errors
/// [`TransportError::Unreachable`] if there is no way to `peer`, or none within `limit`;
/// [`TransportError::Descriptors`], [`TransportError::Socket`] and [`TransportError::Device`] if there can be no socket.
pub(in crate::emulated) async fn connect(
    side: QueuePair,
    peer: SocketAddr,
    directory: Option<&Path>,
    limit: Duration,
) -> Result<(SocketLink, SocketAddr), TransportError> {
    let opened = tokio::time::timeout(limit, open(peer, directory)).await;
    match opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok((socket, local)) => Ok((driver::start(side, Phase::Fresh { port: local.port() }, socket), local)),
        Err(error) if no_listener_there(directory, &error) => {
            Ok((SocketLink::no_listener(side), made_up(peer.ip())))
        }
        Err(error) => Err(failure(peer, directory, error)),
    }
}

fn no_listener_there(directory: Option<&Path>, error: &io::Error) -> bool {
    match error.kind() {
        // The second: no more, since a moment ago.
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => true,
        // No directory, or no socket in it.
        io::ErrorKind::NotFound => directory.is_some(),
        _ => false,
    }
}

fn failure(peer: SocketAddr, directory: Option<&Path>, source: io::Error) -> TransportError {
    match source.kind() {
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::TimedOut => {
            // As the connection manager has it: the OS error, negative.
            let status = -source.raw_os_error().unwrap_or(ETIMEDOUT);
            TransportError::Unreachable { peer, device: DeviceKind::Emulated, status }
        }
        _ => match (failed("connect", source), directory) {
            (TransportError::Device { source, .. }, Some(directory)) => {
                TransportError::Socket { path: socket_path(directory, peer.port()), source }
            }
            (error, _) => error,
        },
    }
}

/// Linux's number; the standard library has no name for it.
const ETIMEDOUT: i32 = 110;

async fn open(peer: SocketAddr, directory: Option<&Path>) -> io::Result<(Box<dyn Socket>, SocketAddr)> {
    if let Some(directory) = directory {
        let path = socket_path(directory, peer.port());
        loop {
            match UnixStream::connect(&path).await {
                // The listener's backlog is full: where TCP would wait for room, a Unix socket fails at once.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(BACKLOG_PAUSE).await;
                }
                outcome => return Ok((Box::new(outcome?), made_up(peer.ip()))),
            }
        }
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

/// Between two looks at a full backlog.
const BACKLOG_PAUSE: Duration = Duration::from_millis(5);

/// An address for an end that has none of its own.
fn made_up(like: IpAddr) -> SocketAddr {
    SocketAddr::new(loopback_like(like), next_port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_out_of_reach_is_told_from_a_socket_that_cannot_be_had() {
        let peer = SocketAddr::from(([192, 0, 2, 1], 6379));
        for (errno, status) in [(113, -113), (101, -101), (110, -110)] {
            let error = failure(peer, None, io::Error::from_raw_os_error(errno));
            assert!(
                matches!(error, TransportError::Unreachable { status: found, .. } if found == status),
                "{error}"
            );
        }
        let expired = failure(peer, None, io::ErrorKind::TimedOut.into());
        assert!(matches!(expired, TransportError::Unreachable { status: -110, .. }), "{expired}");
        let directory = Some(Path::new("/run/emulated"));
        let files = failure(peer, directory, io::Error::from_raw_os_error(24));
        assert!(matches!(files, TransportError::Descriptors { call: "connect", .. }), "{files}");
        let forbidden = failure(peer, directory, io::Error::from_raw_os_error(13)).to_string();
        assert!(forbidden.contains("/run/emulated/6379"), "{forbidden}");
        let other = failure(peer, None, io::Error::from_raw_os_error(13));
        assert!(matches!(other, TransportError::Device { call: "connect", .. }), "{other}");
    }

    #[test]
    fn a_listener_that_goes_meanwhile_is_no_listener() {
        let directory = Some(Path::new("/run/emulated"));
        let [refused, reset, absent, forbidden] = [111, 104, 2, 13].map(io::Error::from_raw_os_error);
        assert!(no_listener_there(None, &refused) && no_listener_there(directory, &refused));
        assert!(no_listener_there(None, &reset) && no_listener_there(directory, &reset));
        assert!(no_listener_there(directory, &absent) && !no_listener_there(None, &absent));
        assert!(!no_listener_there(directory, &forbidden));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_backlog_is_waited_for() {
        let directory = std::env::temp_dir().join(format!("emulated-backlog-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let peer = SocketAddr::from(([127, 0, 0, 1], 6379));
        let socket =
            socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).expect("a socket");
        let path = socket_path(&directory, peer.port());
        socket.bind(&socket2::SockAddr::unix(&path).expect("a name")).expect("binds");
        socket.listen(0).expect("listens");
        let first = open(peer, Some(&directory)).await.expect("the backlog has room for one");
        let mut second = Box::pin(open(peer, Some(&directory)));
        let full = tokio::time::timeout(Duration::from_secs(1), &mut second).await;
        assert!(full.is_err(), "no room, and no error: {full:?}");
        drop(socket.accept().expect("the first"));
        second.await.expect("there is room again");
        drop(first);
        std::fs::remove_dir_all(&directory).expect("removes");
    }
}
