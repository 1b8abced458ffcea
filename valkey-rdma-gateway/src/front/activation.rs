//! What systemd passes to a service, and what a service reports to it: sockets and notifications.

use std::env;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};

use listenfd::ListenFd;

/// Sockets that were bound before this process started (`LISTEN_FDS`). They stay open, so that a reload may close a listener and open it
/// again.
#[derive(Debug, Default)]
pub struct Activation {
    unix: Vec<UnixListener>,
    tcp: Vec<TcpListener>,
}

impl Activation {
    /// Takes over all passed sockets. There are none outside of systemd.
    #[must_use]
    pub fn from_env() -> Self {
        let mut passed = ListenFd::from_env();
        let mut activation = Self::default();
        for index in 0..passed.len() {
            // A socket of another kind is left in place, so the next call may try it.
            if let Ok(Some(listener)) = passed.take_unix_listener(index) {
                activation.unix.push(listener);
            } else if let Ok(Some(listener)) = passed.take_tcp_listener(index) {
                activation.tcp.push(listener);
            }
        }
        activation
    }

    /// The paths of Unix sockets that were passed.
    pub(crate) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.unix.iter().filter_map(|listener| Some(listener.local_addr().ok()?.as_pathname()?.to_owned()))
    }

    /// The addresses of TCP sockets that were passed.
    pub(crate) fn addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.tcp.iter().filter_map(|listener| listener.local_addr().ok())
    }

    /// The socket that was passed for this path.
    pub(crate) fn unix(&self, path: &Path) -> io::Result<Option<UnixListener>> {
        let is_it = |listener: &&UnixListener| {
            listener.local_addr().is_ok_and(|bound| bound.as_pathname() == Some(path))
        };
        let Some(passed) = self.unix.iter().find(is_it) else { return Ok(None) };
        passed.set_nonblocking(true)?;
        passed.try_clone().map(Some)
    }

    /// The socket that was passed for this address.
    pub(crate) fn tcp(&self, addr: SocketAddr) -> io::Result<Option<TcpListener>> {
        let is_it = |listener: &&TcpListener| listener.local_addr().is_ok_and(|bound| bound == addr);
        let Some(passed) = self.tcp.iter().find(is_it) else { return Ok(None) };
        passed.set_nonblocking(true)?;
        passed.try_clone().map(Some)
    }
}

/// Sends a state such as `READY=1` to systemd (`sd_notify`). Does nothing outside of it.
///
/// # Errors
/// Those of the socket that `NOTIFY_SOCKET` names.
pub fn notify(state: &str) -> io::Result<()> {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match name.as_encoded_bytes() {
        [b'@', name @ ..] => net::SocketAddr::from_abstract_name(name)?,
        _ => net::SocketAddr::from_pathname(&name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}
