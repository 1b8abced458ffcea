//! What systemd passes to a service, and what a service reports to it: sockets and notifications.

use std::env;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixDatagram, UnixListener};
use std::path::Path;

use listenfd::ListenFd;

/// Sockets that were bound before this process started (`LISTEN_FDS`).
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

    /// The addresses of sockets that no listener has taken. Clients can connect there, and nothing answers them.
    #[must_use]
    pub fn unused(&self) -> Vec<String> {
        let path = |listener: &UnixListener| {
            let bound = listener.local_addr().ok()?;
            Some(format!("unix:{}", bound.as_pathname()?.display()))
        };
        let addr = |listener: &TcpListener| Some(format!("tcp:{}", listener.local_addr().ok()?));
        self.unix.iter().filter_map(path).chain(self.tcp.iter().filter_map(addr)).collect()
    }

    pub(crate) fn take_unix(&mut self, path: &Path) -> Option<UnixListener> {
        let is_it = |listener: &UnixListener| {
            listener.local_addr().is_ok_and(|bound| bound.as_pathname() == Some(path))
        };
        let at = self.unix.iter().position(is_it)?;
        Some(self.unix.swap_remove(at)).filter(|listener| listener.set_nonblocking(true).is_ok())
    }

    pub(crate) fn take_tcp(&mut self, addr: SocketAddr) -> Option<TcpListener> {
        let at =
            self.tcp.iter().position(|listener| listener.local_addr().is_ok_and(|bound| bound == addr))?;
        Some(self.tcp.swap_remove(at)).filter(|listener| listener.set_nonblocking(true).is_ok())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_that_nothing_takes_are_named() {
        let (one, two) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let (taken, left) = (one.local_addr().unwrap(), two.local_addr().unwrap());
        let mut activation = Activation { unix: Vec::new(), tcp: vec![one, two] };
        assert!(activation.take_tcp(taken).is_some());
        assert_eq!(activation.unused(), [format!("tcp:{left}")]);
    }
}
